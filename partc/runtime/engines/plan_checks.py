"""A function of a kernel plan held against the build: who runs it trusts its types and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from partc.errors import BundleError
from partc.format.build import Submodule, TensorType
from partc.format.dtypes import BY_SHORT
from partc.format.kernel_plan import KernelPlan, KernelTensor
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.format.safetensors import Entry as WeightEntry
from partc.runtime.engines.entries import Entry, function_name


def check_function(
    role: Role,
    module: Submodule,
    sizes: Mapping[str, int],
    entry: Entry,
    plan: KernelPlan,
    weights: Sequence[KernelTensor],
    where: Path,
) -> None:
    """Hold the function of an entry against the build; `sizes` has the value of every symbol in it.

    Raises:
        BundleError: they differ, or it changes something else than states.
    """
    name = function_name(module.name, entry)
    function = plan.functions.get(name)
    if function is None:
        raise BundleError(f"there is no function {name}", where=str(where), hint=RECOMPILE)
    given = [*(role.types[value] for value in module.inputs), *(state.buffer for state in module.states)]
    parameters = [*(_fixed(kind, sizes) for kind in given), *weights]
    problem = (
        _difference("parameters", function.parameters, parameters)
        or _difference(
            "outputs", function.outputs, [_fixed(role.types[value], sizes) for value in module.outputs]
        )
        or _changes(plan.changed(function), range(len(module.inputs), len(given)))
    )
    if problem:
        raise BundleError(f"{name}: {problem}", where=str(where), hint=RECOMPILE)


def weight_tensor(entry: WeightEntry) -> KernelTensor:
    """A weight of a file as a plan has it."""
    return KernelTensor(BY_SHORT[entry.dtype].long, entry.shape)


def _fixed(kind: TensorType, sizes: Mapping[str, int]) -> KernelTensor:
    return KernelTensor(kind.dtype, kind.sizes(sizes))


def _difference(name: str, found: Sequence[KernelTensor], right: Sequence[KernelTensor]) -> str | None:
    if len(found) != len(right):
        return f"{name}: {len(found)}, the build has {len(right)}"
    for number, (one, other) in enumerate(zip(found, right, strict=True)):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            wanted = f"{other.dtype}{list(other.shape)}"
            return f"{name}[{number}]: {one.dtype}{list(one.shape)}, the build has {wanted}"
    return None


def _changes(changed: frozenset[int], states: range) -> str | None:
    others = sorted(changed - set(states))
    return f"it changes parameter {others[0]}, which is no state" if others else None
