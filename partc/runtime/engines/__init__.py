"""Engines, which compute sub-modules and hold their states: null, ort, plan, gpu."""
