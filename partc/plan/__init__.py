"""The planning problem, what an assignment is worth, and the solvers that find the best one."""

from __future__ import annotations
