"""The answer to a planning problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partc.config.section import Section


@dataclass(frozen=True)
class Plan:
    """Who computes what, what that is worth, and how much better any plan could be."""

    feasible: bool
    assignment: tuple[str, ...] | None
    """Device of every sub-module; None where no plan is feasible."""
    value: float | None
    """Seconds (latency) or steps per second (throughput)."""
    bound: float | None
    """No plan can be better than this: below a latency, above a throughput. None: not known."""
    gap: float | None
    """|value - bound| / value; 0 is proven optimal."""
    method: str
    """How it was found."""
    constraint: str | None = None
    """What cannot be met, in words and numbers; None where the plan is feasible."""
    explain: Mapping[str, object] = field(default_factory=dict)
    """Plain JSON: the devices in use, why each other one is not, what binds."""

    def to_json(self) -> dict[str, object]:
        """The JSON form of DESIGN 11; `from_json` gives back an equal plan."""
        return {
            "feasible": self.feasible,
            "assignment": list(self.assignment) if self.assignment is not None else None,
            "value": self.value,
            "bound": self.bound,
            "gap": self.gap,
            "method": self.method,
            "constraint": self.constraint,
            "explain": dict(self.explain),
        }

    @classmethod
    def from_json(cls, data: object, file: str = "answer") -> Plan:
        """Reads what `to_json` wrote.

        Raises:
            ConfigError: a key is unknown or missing, or a value is of the wrong kind.
        """
        top = Section(data, file)
        top.allow(("feasible", "assignment", "value", "bound", "gap", "method", "constraint", "explain"))
        feasible, assignment = top.require("feasible", '"feasible": true'), top.data.get("assignment")
        if not isinstance(feasible, bool):
            raise top.error("expected true or false", "feasible")
        if (assignment is not None) != feasible or (feasible and not isinstance(assignment, list)):
            raise top.error(
                "expected a list of device names exactly where the plan is feasible", "assignment"
            )
        return cls(
            feasible=feasible,
            assignment=tuple(str(name) for name in assignment) if isinstance(assignment, list) else None,
            value=_optional(top, "value"),
            bound=_optional(top, "bound"),
            gap=_optional(top, "gap"),
            method=top.text("method"),
            constraint=top.text("constraint") if top.data.get("constraint") is not None else None,
            explain=dict(top.section("explain").data),
        )


def feasible_plan(
    assignment: tuple[str, ...], value: float, bound: float | None, method: str, explain: Mapping[str, object]
) -> Plan:
    """A feasible plan; the gap follows from value and bound."""
    gap = None if bound is None else abs(value - bound) / value if value else 0.0
    return Plan(True, assignment, value, bound, gap, method, None, explain)


def infeasible_plan(constraint: str, method: str, explain: Mapping[str, object] | None = None) -> Plan:
    """The statement that nothing meets the constraints."""
    return Plan(False, None, None, None, None, method, constraint, explain or {})


def _optional(top: Section, key: str) -> float | None:
    return None if top.data.get(key) is None else top.number(key)
