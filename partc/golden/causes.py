"""Whose doing a change is: the inputs of two records that differ, and how far the graph was alike.

A part of a record can only change where something changed that it depends on. What that is, is a table (`_SOURCES`);
of a graph only what belongs to the first step counts that left another graph: the import, or a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from partc.differences.change import Change, changed_values
from partc.differences.mappings import changed_keys
from partc.golden.config import PARTS
from partc.golden.origin import Origin
from partc.golden.record import Record

IMPORT = "import"
UNKNOWN = "nothing that is recorded changed: is something not reproducible?"
_IMPORTERS = ("torch", "transformers", "onnx", "onnx-ir", "onnxscript", "ml_dtypes", "numpy")
_BUILDERS = ("apache-tvm", "onnxruntime", "ml_dtypes", "numpy", "onnx", "onnx_graphsurgeon")
_SOURCES = {
    "weights": ("checkpoint", "setting model", *(f"library {name}" for name in _IMPORTERS)),
    "plan": (
        "setting devices",
        "setting golden",
        "setting model",
        "partc planner",
        "partc passes/partition_graph.py",
        "partc passes/profile_submodules.py",
        "partc passes/overlap_submodules.py",
        "partc passes/shards",
        "partc passes/shard_blocks.py",
    ),
    "bundle": (
        "partc targets",
        "setting devices",
        "partc passes/emit_bundle.py",
        "partc passes/lower_target.py",
        "partc passes/split_graph.py",
        "partc passes/parts",
        *(f"library {name}" for name in _BUILDERS),
    ),
    "tokens": (
        "partc targets",
        "partc runtime",
        "setting golden",
        "library tokenizers",
        *(f"library {name}" for name in _BUILDERS),
    ),
    "cost": ("partc targets", "partc runtime", *(f"library {name}" for name in _BUILDERS)),
}
"""Part → the inputs by which it can change although the parts before it did not; prefixes of `_Input.name`."""
_FOLLOWS = {
    "plan": ("graph",),
    "bundle": ("graph", "weights", "plan"),
    "tokens": ("graph", "weights"),
    "cost": ("graph", "weights"),
}
"""Part → parts whose changes change it, too."""


@dataclass(frozen=True)
class _Input:
    """Something that a record depends on, and that is another one now."""

    name: str
    """`setting devices.phone.memory_bytes`, `library torch`, `partc planner`, `checkpoint`."""
    text: str
    """As it is told."""


@dataclass(frozen=True)
class Blame:
    """What differs between what two records were made from."""

    inputs: Sequence[_Input]
    step: str | None
    """The first step that left another graph; None: all left the same."""

    @classmethod
    def between(cls, before: Record, after: Record) -> Self:
        """The differences of two records' origins."""
        inputs = list(_inputs(before.origin, after.origin))
        if before.weights and after.weights and before.weights != after.weights:
            names = [name for name in after.weights if before.weights.get(name) != after.weights[name]]
            many = f"{len(names)} tensors" if len(names) != 1 else names[0]
            inputs.append(_Input("checkpoint", f"checkpoint ({many})"))
        return cls(inputs, _first_step(before.origin, after.origin))

    def of(self, changes: Sequence[Change]) -> list[Change]:
        """The changes with their causes, in the order of the parts."""
        causes: dict[str, list[str]] = {}
        found = []
        for part in PARTS:
            mine = [change for change in changes if change.part == part]
            if not mine and part != "graph":
                continue
            own = self._graph() if part == "graph" else self._named(_SOURCES[part])
            inherited = [cause for other in _FOLLOWS.get(part, ()) for cause in causes.get(other, [])]
            causes[part] = list(dict.fromkeys([*own, *inherited]))
            told = causes[part] or [one.text for one in self.inputs] or [UNKNOWN]
            found += [change.due_to(told) for change in mine]
        return found

    def _named(self, prefixes: Iterable[str]) -> list[str]:
        known = tuple(f"{name}." for name in prefixes)
        return [one.text for one in self.inputs if f"{one.name}.".startswith(known)]

    def of_import(self, change: Change) -> Change:
        """A change of what is imported, with its causes: also where nothing can be imported any more."""
        return change.due_to(self._imported() or [one.text for one in self.inputs] or [UNKNOWN])

    def _imported(self) -> list[str]:
        libraries = [f"library {name}" for name in _IMPORTERS]
        return self._named(["setting model", "partc import", *libraries])

    def _graph(self) -> list[str]:
        """What changed the graph, of what belongs to the first step that left another one."""
        if self.step is None:
            return []
        if self.step == IMPORT:
            return self._imported()
        file = self.step.partition(" (")[0].replace("-", "_")
        rooms = {"canonicalize": "rewrites", "fuse_operators": "fusions", "shard_blocks": "shards"}
        own = [f"partc passes/{file}.py", f"partc passes/{rooms.get(file, file)}"]
        found = self._named(
            [*own, "setting model", "setting golden", "partc import", "library onnx_graphsurgeon"]
        )
        return [f"{cause} (pass {self.step})" if cause.startswith("partc") else cause for cause in found]


def _inputs(before: Origin, after: Origin) -> Iterable[_Input]:
    for change in changed_values("", "", before.versions, after.versions):
        name = change.subject
        text = f"{name} {change.before or 'absent'} → {change.after or 'absent'}"
        yield _Input("partc version" if name == "partc" else f"library {name}", text)
    for change in changed_values("", "", before.sources, after.sources):
        yield _Input(f"partc {change.subject}", f"partc's sources ({change.subject})")
    for key, old, new in changed_keys(before.settings, after.settings):
        yield _Input(f"setting {key}", f"{key}: {old or 'absent'} → {new or 'absent'}")


def _first_step(before: Origin, after: Origin) -> str | None:
    """The first step whose outcome is another one; a pass that is new or gone counts where it stands."""
    for (name, digest), (other, found) in zip(before.steps.items(), after.steps.items(), strict=False):
        if (name, digest) != (other, found):
            return other
    return None if len(before.steps) == len(after.steps) else "another list of passes"
