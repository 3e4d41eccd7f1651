"""Roles of the devices of small builds, read once, and the messages of the build that everybody needs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from partc.format.build import Port
from partc.format.dtypes import Array
from partc.format.message_parts import Opening, Sampling
from partc.format.messages import Hello, Submit
from partc.format.program import print_program
from partc.format.role import Role, load_role
from partc.runtime.core.step import Step
from tests.runtime.bundles import HIDDEN, PLAN, Build, classifier, graph_model, language_model
from tests.runtime.returning import returning_model

GREEDY = Sampling()
TICKET = bytes(16)


@cache
def roles(model: Callable[..., Build] = language_model, **options: Any) -> Mapping[str, Role]:
    """Device → its role, for `language_model` (a → b → c → a) or another of the small builds."""
    if model in (language_model, returning_model):
        options.setdefault("engine", "null")
    with tempfile.TemporaryDirectory() as folder:
        build = model(**options).write(Path(folder) / "build")
        return {path.name: load_role(path) for path in sorted((build / "devices").iterdir())}


def encoder() -> Role:
    """The source of a model that reads tokens and does not generate."""
    return roles(classifier)["a"]


def graph() -> Role:
    """The source of a model of tensors."""
    return roles(graph_model)["a"]


def hello(name: str, session: int = 9, **changes: Any) -> Hello:
    """The greeting of a device or client of the build."""
    facts: dict[str, Any] = {
        "plan": bytes.fromhex(PLAN),
        "placement": bytes.fromhex(roles()["a"].placement_id),
        "epoch": 0,
    }
    return Hello(**{**facts, "name": name, "session": session, "incarnation": 5, **changes})


def submit(*prompts: Sequence[int], **changes: Any) -> Submit:
    """A request for two tokens behind each prompt."""
    facts: dict[str, Any] = {
        "ticket": TICKET,
        "prompts": tuple(map(tuple, prompts)),
        "max_new_tokens": 2,
        "sampling": GREEDY,
        "stop": (),
        "ignore_eos": False,
        "trace": False,
        "values": (),
    }
    return Submit(**{**facts, **changes})


def step_of(request: int, step: int, slot: int | None = None, off: int = 0, **opening: Any) -> Step:
    """A step of a request whose prompt has three tokens; `off` is added to its position."""
    return Step(
        request,
        request if slot is None else slot,
        step,
        "decode" if step else "prefill",
        {"batch": 1, "sequence": 1 if step else 3},
        (0 if step == 0 else 2 + step + off,),
        (1 if step else 3,),
        None if step else Opening(request, GREEDY, **opening),
    )


def ids_of(step: Step, token: int = 1) -> dict[str, Array]:
    """Inputs of a step."""
    return {"input_ids": np.full((1, step.dims["sequence"]), token, np.int64)}


def hidden(name: str, sequence: int = 3) -> dict[str, Array]:
    """A value that crosses a link."""
    return {name: np.ones((1, sequence, HIDDEN), np.float32)}


def changed(role: Role, **fields: Any) -> Role:
    """The same role with other facts: fields of the build or the placement, `inputs` by name, typed `programs`."""
    if "inputs" in fields:
        fields["inputs"] = tuple(
            Port(name, kind.dtype, kind.shape) for name, kind in fields["inputs"].items()
        )
    if "programs" in fields:
        texts = {phase: print_program(program) for phase, program in fields["programs"].items()}
        fields["programs"] = {phase: {role.device: text} for phase, text in texts.items()}
    of_ring = {
        name: fields.pop(name) for name in ("source", "ring", "programs", "predicted") if name in fields
    }
    return Role(structs.replace(role.build, **fields), structs.replace(role.placement, **of_ring))
