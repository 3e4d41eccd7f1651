"""The simulator: requests, steps and messages in time, without a device."""

from __future__ import annotations

from partc.plan.simulate.case import simulate_plan
from partc.plan.simulate.result import MODES, Simulation, Span, Transfer

__all__ = ["MODES", "Simulation", "Span", "Transfer", "simulate_plan"]
