"""Proves that a cut model computes what the original computes: `reference.py` runs the original, `check.py` compares."""
