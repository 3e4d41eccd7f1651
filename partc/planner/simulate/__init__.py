"""The simulator: requests, steps and messages in time, without a device."""

from __future__ import annotations

from partc.planner.simulate.case import simulate_plan
from partc.planner.simulate.result import MODES, Simulation, Span, Transfer

__all__ = ["MODES", "Simulation", "Span", "Transfer", "simulate_plan"]
