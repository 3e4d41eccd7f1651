"""Clients of a ring: requests, results, text to tokens and back; rings of local processes."""
