"""The one place in `partc` that names the packages `passes` and `targets`: explicit tables, loaded on first use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from partc.errors import UserError
from partc.pipeline.contract import Pass, Target

PASSES: Mapping[str, str] = {
    "canonicalize": "passes.canonicalize:Canonicalize",
    "infer-sizes": "passes.infer_sizes:InferSizes",
    "fuse-operators": "passes.fuse_operators:FuseOperators",
    "find-cuts": "passes.find_cuts:FindCuts",
    "form-submodules": "passes.form_submodules:FormSubmodules",
    "coarsen-submodules": "passes.coarsen_submodules:CoarsenSubmodules",
    "map-dependencies": "passes.map_dependencies:MapDependencies",
    "profile-submodules": "passes.profile_submodules:ProfileSubmodules",
    "partition-graph": "passes.partition_graph:PartitionGraph",
    "split-graph": "passes.split_graph:SplitGraph",
    "lower-target": "passes.lower_target:LowerTarget",
    "emit-bundle": "passes.emit_bundle:EmitBundle",
}
"""Every pass by name, in the order of the default pipeline."""

TARGETS: Mapping[str, str] = {
    "null": "targets.null:NullTarget",
    "ort": "targets.ort:OrtTarget",
}
"""Every target by the name that devices.yaml uses."""


_KINDS = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}


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
    """The target of that name; raises UserError if there is none."""
    return _load(TARGETS, name, "target")(**(options or {}))  # type: ignore[no-any-return]


def _load(table: Mapping[str, str], name: str, what: str) -> Any:
    if name not in table:
        near = difflib.get_close_matches(name, table, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(table)}"
        raise UserError(f"unknown {what} {name!r}", hint=hint)
    module, attribute = table[name].split(":")
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
        raise UserError(f"{text!r} is no {_KINDS[wanted]}", where=where) from error
