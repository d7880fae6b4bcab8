"""clockgated: keeps one node's clock within a stated error bound, and serves that bound."""

__version__ = "0.1.0"
