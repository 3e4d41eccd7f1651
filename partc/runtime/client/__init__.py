"""Clients of a ring: requests, results, and text to tokens and back."""
