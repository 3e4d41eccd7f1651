"""The one place in `partc` that names the packages `passes` and `targets`: explicit tables, loaded on first use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

from partc.errors import UserError
from partc.pipeline.contract import Pass, Target

PASSES: Mapping[str, str] = {
    "canonicalize": "passes.canonicalize:Canonicalize",
    "infer-sizes": "passes.infer_sizes:InferSizes",
    "fuse-operators": "passes.fuse_operators:FuseOperators",
    "quantize-weights": "passes.quantize_weights:QuantizeWeights",
    "quantize-caches": "passes.quantize_caches:QuantizeCaches",
    "shard-blocks": "passes.shard_blocks:ShardBlocks",
    "find-cuts": "passes.find_cuts:FindCuts",
    "form-submodules": "passes.form_submodules:FormSubmodules",
    "coarsen-submodules": "passes.coarsen_submodules:CoarsenSubmodules",
    "separate-blocks": "passes.separate_blocks:SeparateBlocks",
    "map-dependencies": "passes.map_dependencies:MapDependencies",
    "profile-submodules": "passes.profile_submodules:ProfileSubmodules",
    "partition-graph": "passes.partition_graph:PartitionGraph",
    "form-rings": "passes.form_rings:FormRings",
    "overlap-submodules": "passes.overlap_submodules:OverlapSubmodules",
    "split-graph": "passes.split_graph:SplitGraph",
    "lower-target": "passes.lower_target:LowerTarget",
    "emit-bundle": "passes.emit_bundle:EmitBundle",
}
"""Every pass by name, in the order of the default pipeline. `shard-blocks` is no part of it yet, `separate-blocks`
only where several devices may share a block, and `form-rings` stands for `partition-graph` where there is a demand."""

TARGETS: Mapping[str, str] = {
    "null": "targets.null:NullTarget",
    "ort": "targets.ort:OrtTarget",
    "tvm": "targets.tvm:TvmTarget",
}
"""Every target by the name that devices.yaml uses."""

DEFAULT_TARGETS = ("tvm", "ort")
"""For a device that names no target: the first that serves it, or else the last."""

COMMON_OPTIONS = ("provider", "threads", "arch")
"""Options that every target is offered; a target takes those that it has fields for."""

_KINDS = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}
_SAMPLES = {"int": "4", "float": "0.5", "str": "name", "bool": "true"}


def load_pass(text: str) -> Pass:
    """The pass that `text` names, with options: `find-cuts{rule=eq1}`.

    Raises:
        UserError: an unknown pass or option, or a value of the wrong kind.
    """
    found = re.fullmatch(r"([a-z-]+)(?:\{(.*)\})?", text.strip())
    if found is None:
        raise UserError(f"not a pass: {text!r}", hint="write NAME or NAME{option=value,option=value}")
    kind = _load(PASSES, found.group(1), "pass")
    return kind(**_options(kind, found.group(2) or ""))  # type: ignore[no-any-return]


def load_passes(text: str) -> list[Pass]:
    """The passes of a comma-separated list; commas inside braces belong to options."""
    return [load_pass(item) for item in re.split(r",(?![^{]*\})", text) if item.strip()]


def load_target(name: str, options: Mapping[str, Any] | None = None) -> Target:
    """The target of that name, with what it takes of the `COMMON_OPTIONS`, and all other options.

    Raises:
        UserError: there is no such target or option.
    """
    kind, given = target_type(name), options or {}
    known = {field.name for field in fields(kind)}
    common = {key: value for key, value in given.items() if key in COMMON_OPTIONS and key in known}
    own = {key: value for key, value in given.items() if key not in COMMON_OPTIONS}
    return kind(**common, **target_options(name, own))


def target_type(name: str) -> type[Target]:
    """The class of the target of that name.

    Raises:
        UserError: there is no such target.
    """
    return _load(TARGETS, name, "target")  # type: ignore[no-any-return]


def default_target(arch: str, provider: str) -> str:
    """The target of a device that names none."""
    serving = (name for name in DEFAULT_TARGETS if target_type(name).serves(arch, provider))
    return next(serving, DEFAULT_TARGETS[-1])


def target_fusions() -> tuple[str, ...]:
    """The names of the fusions of all targets."""
    return tuple(dict.fromkeys(fusion for name in TARGETS for fusion in target_type(name).fusions))


def fusions() -> dict[str, tuple[str, ...]]:
    """Pass → the names of its fusions, for every pass that has some."""
    found = {name: _load(PASSES, name, "pass").fusions() for name in PASSES}
    return {name: names for name, names in found.items() if names}


def sort_fusions(names: Iterable[str]) -> dict[str, str]:
    """Pass → those of the fusions in `names` that are its own, separated by semicolons.

    Raises:
        UserError: there is no fusion of that name; lists those there are.
    """
    known = fusions()
    wanted = list(dict.fromkeys(names))
    everything = [name for listed in known.values() for name in listed]
    for name in wanted:
        if name not in everything:
            raise UserError(
                f"there is no fusion {name!r}", where="--disable", hint=f"fusions: {', '.join(everything)}"
            )
    return {step: ";".join(name for name in wanted if name in listed) for step, listed in known.items()}


def target_options(name: str, given: Mapping[str, object]) -> dict[str, object]:
    """Options of a target's own as its fields take them; lists become tuples.

    Raises:
        UserError: the target has no such option, or it is of another kind; `where` is its name.
    """
    known = _own_options(name)
    for option in given:
        if option not in known:
            hint = f"{_meant(option, known)}its options: {', '.join(known) or 'none'}"
            raise UserError(f"the target {name} has no option {option!r}", where=option, hint=hint)
    return {option: _option(option, value, known[option]) for option, value in given.items()}


def _own_options(target: str) -> dict[str, Any]:
    """Option of the target's own → the type of its field."""
    kind = target_type(target)
    types = get_type_hints(kind)
    return {f.name: types[f.name] for f in fields(kind) if f.name not in COMMON_OPTIONS}


def owner_of(option: str) -> str | None:
    """The first target with an option of its own of that name; None where there is none."""
    return next((name for name in TARGETS if option in _own_options(name)), None)


def _meant(option: str, known: Iterable[str]) -> str:
    """The beginning of a hint: the target that has such an option, or the option of nearly that name; empty else."""
    if owner := owner_of(option):
        return f"`target: {owner}` has it; "
    near = difflib.get_close_matches(option, known, 1)
    return f"did you mean {near[0]!r}? " if near else ""


def _option(option: str, value: object, kind: Any) -> object:
    """`kind` is int, float, str, bool, or a `tuple[…, ...]` of one of them."""
    wanted = get_args(kind)[0] if get_origin(kind) is tuple else kind
    what, sample = _KINDS[wanted.__name__], _SAMPLES[wanted.__name__]
    if wanted is kind:
        if type(value) is wanted:
            return value
        hint = f"write `{option}: {sample}`"
        raise UserError(f"expected a {what}, found {value!r}", where=option, hint=hint)
    if isinstance(value, (list, tuple)) and all(type(part) is wanted for part in value):
        return tuple(value)
    hint = f"write `{option}: [{sample}]`"
    raise UserError(f"expected a list, each a {what}; found {value!r}", where=option, hint=hint)


def _load(table: Mapping[str, str], name: str, what: str) -> Any:
    if name not in table:
        near = difflib.get_close_matches(name, table, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(table)}"
        raise UserError(f"unknown {what} {name!r}", hint=hint)
    return _entry(table[name])


def _entry(text: str) -> Any:
    """The object that `module:attribute` names."""
    module, attribute = text.split(":")
    return getattr(import_module(module), attribute)


def _options(kind: Any, text: str) -> dict[str, object]:
    known = {field.name: field.type for field in fields(kind)}
    options: dict[str, object] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        key, separator, value = item.partition("=")
        name = key.strip().replace("-", "_")
        if name not in known or not separator:
            raise UserError(
                f"pass {kind.name} has no option {item!r}",
                hint=f"options: {', '.join(sorted(known)) or 'none'}",
            )
        options[name] = _convert(str(known[name]), value.strip(), f"{kind.name}{{{name}}}")
    return options


def _convert(kind: str, text: str, where: str) -> object:
    converters = {
        "int": int,
        "float": float,
        "str": str,
        "bool": lambda word: {"true": True, "false": False}[word],
    }
    wanted = kind.split("|")[0].strip()
    try:
        return converters[wanted](text)  # type: ignore[operator]
    except (ValueError, KeyError) as error:
        hint = f"write {_SAMPLES[wanted]}, for instance"
        raise UserError(f"{text!r} is no {_KINDS[wanted]}", where=where, hint=hint) from error
