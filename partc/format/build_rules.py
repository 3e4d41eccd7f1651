"""Rules of build.json beyond the types of its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from partc.errors import BundleError
from partc.format.dims import evaluate, symbols
from partc.format.dtypes import DTYPES
from partc.format.plain_files import is_inside
from partc.format.prompt_steps import Size
from partc.format.reading import RECOMPILE
from partc.format.state_kinds import is_rewritten

if TYPE_CHECKING:
    from partc.format.build import Build, EngineSpec, State, TensorType

MOST_STEP_TOKENS = 8
"""Tokens of a request behind each other that may be under way: in one step, or in several."""
_COMPILED = {"plan": ("cpu",), "gpu": ("cuda", "opencl")}
"""Engine of compiled code → its providers."""


def check_build(build: Build, where: str) -> None:
    """Make sure that every name refers to something, and that every size can be reckoned.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """

    def error(message: str) -> BundleError:
        return BundleError(message, where=where, hint=RECOMPILE)

    if problem := _sizes_problem(build.model.prompt_steps, 1, build.model.max_sequence):
        raise error(f"model.prompt_steps: {problem}")
    if problem := _sizes_problem(build.model.step_tokens, 2, MOST_STEP_TOKENS):
        raise error(f"model.step_tokens: {problem}")
    for name in build.files:
        if not is_inside(name):
            raise error(f"files: {name!r} does not stay in the folder")
    for submodule in build.submodules:
        for file in (submodule.file, *submodule.weights):
            if file not in build.files:
                raise error(f"submodules: {file!r} of {submodule.name} is not among the files")
        if submodule.covers and submodule.covers[0] > submodule.covers[1]:
            raise error(f"submodules: covers of {submodule.name} goes backwards")
    if problem := _engine_problem(build):
        raise error(f"engine.{problem}")
    for state in (state for submodule in build.submodules for state in submodule.states):
        if problem := _layout_problem(state, build.engine):
            raise error(f"submodules: layout of {state.name}: {problem}")
    for name, tensor in _types(build).items():
        if problem := _type_problem(tensor, build.dims):
            raise error(f"{name}: {problem}")


def _sizes_problem(sizes: Sequence[Size], least: int, most: int) -> str | None:
    rows = [size for size, _ in sizes]
    if rows != sorted({*rows}) or any(not least <= size <= most for size in rows):
        return f"expected sizes from {least} to {most}, smallest first, each once"
    # So sums of costs stay below 2**64.
    return "expected costs below 2**30" if any(cost >= 2**30 for _, cost in sizes) else None


def _layout_problem(state: State, engine: EngineSpec) -> str | None:
    if state.layout == "plain":
        return None
    if engine.kind != "plan":
        return f"{engine.kind} on {engine.provider} holds no panels"
    is_cache = (
        not is_rewritten(state.kind)
        and len(state.shape) == 4
        and all(type(n) is int for n in state.shape[2:])
    )
    return None if is_cache else "only rows [batch, heads, N, N] lie in panels"


def _engine_problem(build: Build) -> str | None:
    engine = build.engine
    if (engine.kind in _COMPILED) != (engine.library is not None):
        return f"library: is there just where the kind is {' or '.join(_COMPILED)}"
    if engine.library is None:
        return None
    if engine.provider not in _COMPILED[engine.kind]:
        return f"provider: the engine {engine.kind} has no provider {engine.provider!r}"
    missing = sorted({submodule.name for submodule in build.submodules} - set(engine.library.functions))
    return f"library.functions: {missing[0]!r} is missing" if missing else None


def _types(build: Build) -> dict[str, TensorType]:
    """Place → type of everything in the file that has one."""
    ports = {f"{key}.{port.name}": port.type for key in ("inputs", "outputs") for port in getattr(build, key)}
    states = {
        f"submodules.{s.name}: {state.name}": state.type for s in build.submodules for state in s.states
    }
    return {**ports, **{f"values.{name}": tensor for name, tensor in build.values.items()}, **states}


def _type_problem(tensor: TensorType, dims: Mapping[str, int]) -> str | None:
    if tensor.dtype not in DTYPES:
        return f"dtype: {tensor.dtype!r} is unknown"
    for dim in tensor.shape:
        if not _is_size(dim):
            return f"shape: {dim!r} is not a size"
        if unknown := sorted(symbols(dim) - set(dims)):
            return f"shape: {unknown[0]!r} has no largest value in dims"
    return None


def _is_size(dim: int | str) -> bool:
    try:
        value = evaluate(dim, dict.fromkeys(symbols(dim), 1))
        return isinstance(dim, str) or 0 <= value < 2**53
    except (ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return False
