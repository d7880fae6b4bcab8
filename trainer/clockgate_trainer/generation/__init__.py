"""Answers of a model: prompts laid out as in training, decoding by qlora.py's flags, predictions of a run."""
