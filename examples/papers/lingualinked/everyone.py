"""The best plan in which every device has a part: what the paper's phones, all of them at work, could do."""

from __future__ import annotations

from itertools import accumulate, pairwise, permutations

from partc.planner.model.problem import Phase, Problem

Assignment = tuple[str, ...]
Partial = tuple[float, tuple[int, ...]]
"""Seconds until a cut, and the cuts until there: where each device's interval ends."""


def best_with_everyone(problem: Problem) -> Assignment:
    """The quickest assignment with one interval for each device, of all orders after the source.

    Dynamic programming over the cuts, O(d! n^2) for d devices and n sub-modules; exact for a chain, where each
    sub-module hands something to the next alone.

    Raises:
        ValueError: none fits.
    """
    others = [device.name for device in problem.devices if device.name != problem.source]
    found = [
        (*best, (problem.source, *order))
        for order in permutations(others)
        if (best := _Ring(problem, (problem.source, *order)).best())
    ]
    _, ends, order = min(found)
    parts = zip(order, pairwise((0, *ends)), strict=True)
    return tuple(name for name, (first, end) in parts for _ in range(first, end))


class _Ring:
    """The devices of a problem in one order."""

    def __init__(self, problem: Problem, order: tuple[str, ...]) -> None:
        self.problem = problem
        self.order = order
        self.count = len(problem.submodules)
        self.until = {name: self._until(name) for name in order}
        """Device -> seconds for the sub-modules before each cut."""

    def _until(self, device: str) -> list[float]:
        weighted = [
            sum(phase.weight * phase.time_s[j][device] for phase in self.problem.steps)
            for j in range(self.count)
        ]
        return [0.0, *accumulate(weighted)]

    def best(self) -> Partial | None:
        """Seconds and cuts of the best assignment; None where none fits."""
        source, last = self.order[0], self.order[-1]
        partials: dict[int, Partial] = {
            end: (self.until[source][end], (end,)) for end in self._ends(source, 0)
        }
        for sender, receiver in pairwise(self.order):
            further: dict[int, Partial] = {}
            for start, (seconds, cuts) in partials.items():
                arrival = seconds + self._hop(sender, receiver, start)
                for end in self._ends(receiver, start):
                    finish = arrival + self.until[receiver][end] - self.until[receiver][start]
                    further[end] = min(further.get(end, (finish, (*cuts, end))), (finish, (*cuts, end)))
            partials = further
        if self.count not in partials:
            return None
        seconds, cuts = partials[self.count]
        return seconds + self._message(
            last, source, [phase.return_bytes for phase in self.problem.steps]
        ), cuts

    def _ends(self, device: str, start: int) -> list[int]:
        """Where an interval from `start` may end, for the memory of the device."""
        budget = self.problem.device_of[device].memory_bytes - self.problem.device_of[device].overhead_bytes
        ends = range(start + 1, self.count + 1)
        return [end for end in ends if self.problem.interval_memory(start, end - 1) <= budget]

    def _hop(self, sender: str, receiver: str, cut: int) -> float:
        return self._message(sender, receiver, [_crossing(phase, cut) for phase in self.problem.steps])

    def _message(self, sender: str, receiver: str, sizes: list[float]) -> float:
        link = self.problem.link_of[sender, receiver]
        pairs = zip(self.problem.steps, sizes, strict=True)
        return sum(phase.weight * link.seconds(size) for phase, size in pairs)


def _crossing(phase: Phase, cut: int) -> float:
    """Bytes of the values that are made before a cut and read after it."""
    edges = [edge for edge in phase.edges if edge.sender < cut <= edge.receiver]
    return sum({(edge.sender, edge.value): edge.bytes for edge in edges}.values())
