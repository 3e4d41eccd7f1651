"""What labels of both objectives have in common: the memory that a beginning of a plan uses, and on which devices.

A label is a beginning of a plan: a device for each sub-module before a cut. One makes another superfluous where
whatever follows the other costs no less than the same behind it. For that it must use no more memory on any device, as
far as memory can still bind there; so what can bind no more counts as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from partc.planner.exact.returns.space import Space
from partc.planner.exact.tables import group_devices

Binding = list[tuple[float, ...]]
"""[device]: numbers of which less is better; zeros where all that is left fits."""
_ROUNDING_BYTES = 1.0
"""What sums of memory may be wrong by."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The memory that a beginning of a plan uses; one entry for each device."""

    use: tuple[float, ...]
    """Bytes of memory, without peaks."""
    peak: tuple[float, ...]
    disk: tuple[float, ...]
    groups: tuple[int, ...]
    """Shared groups that are there, as bits."""
    load: tuple[float, ...]
    """Memory as prices count it."""
    used: int
    """Devices in use, as bits."""
    runs: int
    """Intervals; neighbours on one device are one."""

    @property
    def returns(self) -> int:
        """How often a device was returned to."""
        return self.runs - self.used.bit_count()


class Holdings:
    """The rules of what devices may hold."""

    def __init__(self, space: Space) -> None:
        """O(n)."""
        self.space = space
        self.most_returns = space.problem.returns
        self._alike = [[space.names.index(name) for name in names] for names in group_devices(space.problem)]
        self._may_exchange = space.links_all and self.most_returns is None and not space.forced[0]

    def empty(self) -> Holding:
        """Nothing is held."""
        zeros = (0.0,) * self.space.devices
        return Holding(zeros, zeros, zeros, (0,) * self.space.devices, zeros, 0, 0)

    def with_submodule(self, held: Holding, j: int, device: int, *, begins: bool) -> Holding | None:
        """One sub-module more on a device, where a run may begin with it; None: it does not fit."""
        space = self.space
        group = space.group[j]
        is_new = group >= 0 and not held.groups[device] >> group & 1
        shared = space.group_bytes[group] if is_new else 0.0
        use = held.use[device] + space.memory[j] + shared
        peak = max(held.peak[device], space.peak[j])
        disk = held.disk[device] + space.disk[j] + shared
        if use + peak > space.room[device] or disk > space.storage[device]:
            return None
        found = Holding(
            _with(held.use, device, use),
            _with(held.peak, device, peak),
            _with(held.disk, device, disk),
            _with(held.groups, device, held.groups[device] | 1 << group) if is_new else held.groups,
            _with(held.load, device, held.load[device] + float(space.charged[j, device])),
            held.used | 1 << device,
            held.runs + begins,
        )
        if self.most_returns is not None and found.returns > self.most_returns:
            return None
        return found if self._may_hold_the_rest(found, j + 1) else None

    def _may_hold_the_rest(self, held: Holding, cut: int) -> bool:
        """Whether all that is left on all devices is enough for the sub-modules behind a cut, however they are cut."""
        space, (memory, disk) = self.space, self._least_behind[cut]
        left = (space.room[device] - held.use[device] - held.peak[device] for device in range(space.devices))
        if memory > sum(left) + _ROUNDING_BYTES:
            return False
        return disk <= sum(space.storage) - sum(held.disk) + _ROUNDING_BYTES

    def room(self, held: Holding, device: int) -> float:
        """Bytes that are left on a device."""
        return self.space.room[device] - held.use[device] - held.peak[device]

    def choices(self, held: Holding) -> list[int]:
        """The devices to try next: of those that are alike and hold nothing, the first one will do."""
        found = [device for names in self._alike for device in self._first_unused(names, held)]
        return sorted(found)

    def _first_unused(self, alike: list[int], held: Holding) -> list[int]:
        used = [device for device in alike if held.used >> device & 1]
        return used + [device for device in alike if device not in used][:1]

    def exchanged(self, binding: Binding, device: int) -> Binding:
        """The same where devices that are alike change places, but for one: sorted, so that it compares with others."""
        found = binding.copy()
        for names in self._alike:
            others = [each for each in names if each != device]
            if len(others) > 1 and self._may_exchange:
                for each, numbers in zip(others, sorted(binding[each] for each in others), strict=True):
                    found[each] = numbers
        return found

    def binding(self, held: Holding, cut: int) -> Binding:
        """By device, as many for each: numbers of which none is larger where one label replaces another at a cut."""
        space, found = self.space, []
        later, rest, top, disk = self._behind[cut]
        for device in range(space.devices):
            use, peak, on_disk = held.use[device], held.peak[device], held.disk[device]
            fits = use + rest + max(top, peak) <= space.room[device]
            if fits and on_disk + disk <= space.storage[device]:
                found.append((0.0,) * (3 + len(later)))
                continue
            groups = (0.0 if held.groups[device] >> group & 1 else 1.0 for group in later)
            found.append((0.0, 0.0, on_disk, *groups) if fits else (use, use + peak, on_disk, *groups))
        return found

    def may_replace(self, one: Holding, other: Holding) -> bool:
        """Whether one may use and return to the devices that the other may."""
        members, _ = self.space.forced
        if other.used & members & ~one.used:
            return False
        if self.most_returns is None:
            return True
        return one.returns + (one.used & ~other.used).bit_count() <= other.returns

    def is_complete(self, held: Holding) -> bool:
        """Whether a plan uses the devices that it must."""
        members, count = self.space.forced
        return (held.used & members).bit_count() >= count

    @cached_property
    def _least_behind(self) -> list[tuple[float, float]]:
        """[cut]: memory and disk of later sub-modules, without what they share."""
        space, cuts = self.space, range(self.space.count + 1)
        return [(sum(space.memory[cut:]), sum(space.disk[cut:])) for cut in cuts]

    @cached_property
    def _behind(self) -> list[tuple[list[int], float, float, float]]:
        """[cut]: groups of later sub-modules, and their memory, largest peak and disk."""
        space, found = self.space, []
        for cut in range(space.count + 1):
            later = sorted({group for group in space.group[cut:] if group >= 0})
            shared = sum(space.group_bytes[group] for group in later)
            memory, disk = sum(space.memory[cut:]) + shared, sum(space.disk[cut:]) + shared
            found.append((later, memory, max(space.peak[cut:], default=0.0), disk))
        return found


def _with(values: tuple, device: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:device], value, *values[device + 1 :])
