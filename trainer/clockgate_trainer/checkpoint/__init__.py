"""Checkpoints: written aside, hashed, agreed on by all ranks, then put in place whole; found, verified, loaded."""
