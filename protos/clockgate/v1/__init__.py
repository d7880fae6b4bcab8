"""Generated code of package clockgate.v1."""
