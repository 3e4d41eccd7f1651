"""Small builds whose engine is `null`, so that they run on every machine: its numbers are those of docs/conformance.md.

| build | what it has |
| --- | --- |
| `chain` | three devices a, b, c; a cache on b; a residual from a to c; three requests of three sequences |
| `parts` | the same, whose prompts go in parts of four tokens |
| `whole` | the same, where each step rewrites the state of b |
| `returning` | steps that come back to a |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from partc.format.build import (
    Build,
    EngineSpec,
    Memory,
    Model,
    Port,
    State,
    Submodule,
    TensorType,
    build_json,
    seal_build,
)
from partc.format.digests import canonical_json
from partc.format.files import hash_folder
from partc.format.names import BUILD_FILE, PLACEMENT_FILE
from partc.format.placement import Placement, placement_json, seal_placement, stages_of
from partc.runtime.shell.keys import make_keys

VOCABULARY, HIDDEN, LENGTH, EOS, MOST = 17, 8, 24, 3, 3
_CUT = TensorType("float32", ("batch", "sequence", HIDDEN))
_LOGITS = TensorType("float32", ("batch", 1, VOCABULARY))
_TOKEN = TensorType("int64", ("batch",))
_ROWS = State("cache.0.key", "cache.0.key", "cache.0.key.out", "float32", ("batch", LENGTH, HIDDEN), "rows")
_WHOLE = State("memory", "memory", "memory.out", "float32", ("batch", HIDDEN), "whole")
_PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class _Piece:
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    states: tuple[State, ...] = ()


@dataclass(frozen=True)
class _Device:
    pieces: Sequence[_Piece]
    program: str
    values: Mapping[str, TensorType]


@dataclass(frozen=True)
class SmallBuild:
    """Devices by name; the first one is the source."""

    devices: Mapping[str, _Device]
    prompt_chunk: int | None = None
    plan_id: str = field(default_factory=lambda: hashlib.sha256(b"conformance").hexdigest())

    def write(self, folder: Path) -> Path:
        """Write it as `partc compile` does, with keys; the folder."""
        placement = self._placement()
        for name, device in self.devices.items():
            place = folder / "devices" / name
            place.mkdir(parents=True)
            for piece in device.pieces:
                (place / f"{piece.name}.txt").write_text(piece.name)
            build = seal_build(self._build(place, name, device))
            (place / BUILD_FILE).write_text(canonical_json(build_json(build)))
            (place / PLACEMENT_FILE).write_text(canonical_json(placement_json(placement)))
        make_keys(folder, list(self.devices), next(iter(self.devices)))
        return folder

    def _placement(self) -> Placement:
        ring = tuple(self.devices)
        stages = stages_of([name for name, device in self.devices.items() for _ in device.pieces])
        programs = {name: device.program for name, device in self.devices.items()}
        return seal_placement(
            Placement(
                placement_id="",
                plan_id=self.plan_id,
                source=ring[0],
                ring=ring,
                stages=dict.fromkeys(_PHASES, stages),
                programs=dict.fromkeys(_PHASES, programs),
                addresses=dict.fromkeys(ring),
                predicted={"prefill_s": 0.01, "decode_s": 0.01},
            )
        )

    def _build(self, folder: Path, name: str, device: _Device) -> Build:
        model = Model(
            name="conformance", task="text-generation", dtype="float32", max_sequence=LENGTH, max_batch=MOST,
            max_requests=MOST, vocab_size=VOCABULARY, eos_token_ids=(EOS,), pad_token_id=0, bos_token_id=None,
            labels=None, prompt_chunk=self.prompt_chunk,
        )  # fmt: skip
        modules = tuple(
            Submodule(
                piece.name, f"{piece.name}.txt", (), tuple(piece.inputs), tuple(piece.outputs), piece.states
            )
            for piece in device.pieces
        )
        return Build(
            plan_id=self.plan_id,
            device=name,
            target="null",
            model=model,
            inputs=(Port("input_ids", "int64", ("batch", "sequence")),),
            outputs=(Port("token", "int64", ("batch",)),),
            dims={"batch": MOST, "sequence": LENGTH},
            values=device.values,
            submodules=modules,
            engine=EngineSpec("null", chunked_prefill=True),
            memory=Memory(None, 0, 0, None),
            toolkit={},
            files=hash_folder(folder),
            digest="",
        )


def _chain() -> SmallBuild:
    first = (
        "run part_0 (input_ids) -> (embed, hidden_1)\nsend hidden_1 to b\nsend embed to c\n"
        "recv token from c\nemit token\n"
    )
    middle = "recv hidden_1 from a\nrun part_1 (hidden_1, position) -> (hidden_2)\nsend hidden_2 to c\n"
    last = (
        "recv embed from a\nrecv hidden_2 from b\nrun part_2 (hidden_2, embed, length) -> (logits)\n"
        "sample logits -> token\nsend token to a\n"
    )
    return SmallBuild(
        {
            "a": _Device(
                [_Piece("part_0", ["input_ids"], ["embed", "hidden_1"])],
                first,
                {"embed": _CUT, "hidden_1": _CUT, "token": _TOKEN},
            ),
            "b": _Device(
                [_Piece("part_1", ["hidden_1", "position"], ["hidden_2"], (_ROWS,))],
                middle,
                {"hidden_1": _CUT, "hidden_2": _CUT},
            ),
            "c": _Device(
                [_Piece("part_2", ["hidden_2", "embed", "length"], ["logits"])],
                last,
                {"embed": _CUT, "hidden_2": _CUT, "logits": _LOGITS, "token": _TOKEN},
            ),
        }
    )


def _whole() -> SmallBuild:
    chain = _chain()
    middle = chain.devices["b"]
    piece = _Piece("part_1", ["hidden_1"], ["hidden_2"], (_WHOLE,))
    program = middle.program.replace("(hidden_1, position)", "(hidden_1)")
    return replace(chain, devices={**chain.devices, "b": replace(middle, pieces=[piece], program=program)})


def _returning() -> SmallBuild:
    first = (
        "run part_0 (input_ids) -> (embed)\nsend embed to b\nrecv hidden_2 from c\n"
        "run part_3 (hidden_2, embed, length) -> (logits)\nsample logits -> token\nemit token\n"
    )
    pieces = [
        _Piece("part_0", ["input_ids"], ["embed"]),
        _Piece("part_3", ["hidden_2", "embed", "length"], ["logits"]),
    ]
    values = {"embed": _CUT, "hidden_2": _CUT, "logits": _LOGITS, "token": _TOKEN}
    return SmallBuild(
        {
            "a": _Device(pieces, first, values),
            "b": _Device(
                [_Piece("part_1", ["embed", "position"], ["hidden_1"], (_ROWS,))],
                "recv embed from a\nrun part_1 (embed, position) -> (hidden_1)\nsend hidden_1 to c\n",
                {"embed": _CUT, "hidden_1": _CUT},
            ),
            "c": _Device(
                [_Piece("part_2", ["hidden_1"], ["hidden_2"])],
                "recv hidden_1 from b\nrun part_2 (hidden_1) -> (hidden_2)\nsend hidden_2 to a\n",
                {"hidden_1": _CUT, "hidden_2": _CUT},
            ),
        }
    )


BUNDLES: Mapping[str, Callable[[], SmallBuild]] = {
    "chain": _chain,
    "parts": lambda: replace(_chain(), prompt_chunk=4),
    "whole": _whole,
    "returning": _returning,
}
