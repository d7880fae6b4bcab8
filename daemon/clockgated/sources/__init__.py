"""Measuring: one file per thing that is asked. Every one gives evidence in our units and sign, or says why not."""
