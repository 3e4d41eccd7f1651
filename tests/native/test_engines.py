"""Engines of the native runner beside Python's: the same numbers and states bit for bit, and the same errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from safetensors.numpy import load_file, save_file

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import PartcError
from partc.format.build import build_json, seal_build
from partc.format.digests import canonical_json
from partc.format.dtypes import DTYPES, Array
from partc.format.names import BUILD_FILE
from partc.format.role import Role, load_role
from partc.ir.quantization import Quantization
from partc.runtime.engines.contract import Engine, make_engine
from tests.bundle.tiny import MAX
from tests.families import ring
from tests.families.check import simplified
from tests.families.ring import DirectRing
from tests.native.engine_program import NativeEngine
from tests.runtime.engines.test_contract import PART, STATES, Device, compiled
from tests.runtime.engines.test_mapped_weights import needs_large_pages
from tests.targets.aarch64 import ROOT
from tests.targets.test_tvm_aarch64 import _build, _devices

pytestmark = pytest.mark.native


KINDS = [
    "null",
    pytest.param("ort", marks=pytest.mark.ort),
    pytest.param("tvm", marks=pytest.mark.tvm),
    pytest.param("opencl", marks=[pytest.mark.tvm, pytest.mark.opencl]),
]


@pytest.fixture(scope="module", params=KINDS)
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Device:
    """The second half of a Llama of two layers, and its cache: 2 slots, 2 sequences, MAX positions."""
    made = compiled(tmp_path_factory.mktemp("engine"), request.param)
    build = seal_build(made.role.build)
    (made.folder / BUILD_FILE).write_text(canonical_json(build_json(build)))
    return made


@pytest.fixture
def native(built: Path, device: Device) -> Iterator[NativeEngine]:
    with NativeEngine([built / "engine"], device.folder) as engine:
        yield engine


def drawn_inputs(role: Role, dims: dict[str, int], position: int, rng: np.random.Generator) -> list[Array]:
    """Inputs of a step; every sequence is at `position`, and all rows are valid."""
    known = {
        "position": np.full(dims["batch"], position),
        "length": np.full(dims["batch"], dims["sequence"]),
        "index": np.arange(dims["sequence"]),
    }
    types = {name: role.types[name] for module in role.submodules.values() for name in module.inputs}
    drawn = {
        name: rng.standard_normal(kind.sizes(dims)).astype(DTYPES[kind.dtype]) for name, kind in types.items()
    }
    return [known.get(name, drawn[name]) for module in role.submodules.values() for name in module.inputs]


def act(engine: Engine | NativeEngine, role: Role, seed: int) -> Sequence[bytes | str]:
    """Some calls that a seed draws, and what came of them: bytes of arrays, or texts of errors."""
    rng = np.random.default_rng(seed)
    engine.load(PART)
    found: list[bytes | str] = []
    dims = [{**role.dims, "batch": 2, "sequence": 1}] * 2
    for _ in range(60):
        slot = int(rng.integers(2))
        position = int(rng.integers(MAX))
        kind = rng.choice(["run", "run", "run", "share", "share", "read", "write", "reset", "reload"])
        begin, end = (int(n) for n in sorted(rng.integers(0, MAX + 2, 2)))
        place = (PART, slot, str(rng.choice([*STATES, "none"], p=[0.45, 0.45, 0.1])), int(rng.integers(3)))
        try:
            if kind == "run":
                rows = int(rng.integers(1, MAX - position + 1))
                step = {**dims[slot], "sequence": rows}
                given = drawn_inputs(role, step, position, rng)
                found += [array.tobytes() for array in engine.run(PART, slot, given, step)]
            elif kind == "share":
                slots = [int(each) for each in rng.permutation(2)]
                step = {**role.dims, "batch": 2, "sequence": 1}
                given = drawn_inputs(role, step, position, rng)
                found += [array.tobytes() for array in engine.run_shared(PART, slots, given, step)]
            elif kind == "read":
                found.append(engine.read_rows(*place, begin, end).tobytes())
            elif kind == "write":
                drawn = rng.standard_normal((end - begin, 2, 8)).astype(np.float32)
                engine.write_rows(*place, begin, drawn)
            elif kind == "reset":
                dims[slot] = {**role.dims, "batch": int(rng.integers(1, 3)), "sequence": 1}
                engine.reset(slot, dims[slot])
            else:
                engine.release(PART)
                engine.load(PART)
        except PartcError as error:
            found.append(str(error))
    found += [engine.read_rows(PART, slot, state, 0, 0, MAX).tobytes() for slot in (0, 1) for state in STATES]
    return found


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("seed", range(5))
def test_the_same_calls_give_the_same_bytes_and_errors(
    device: Device, native: NativeEngine, seed: int
) -> None:
    role = load_role(device.folder)
    right = act(make_engine(role, device.folder), role, seed)
    assert act(native, role, seed) == right
    assert len({item for item in right if isinstance(item, bytes)}) > 10
    assert any(isinstance(item, str) for item in right)


def test_another_input_gives_other_bytes(device: Device, native: NativeEngine) -> None:
    role = load_role(device.folder)
    native.load(PART)
    step = {**role.dims, "batch": 1, "sequence": 2}
    native.reset(0, step)
    one, other = (
        drawn_inputs(role, step, 0, np.random.default_rng(0)),
        drawn_inputs(role, step, 0, np.random.default_rng(1)),
    )
    results = [native.run(PART, 0, given, step)[0].tobytes() for given in (one, other)]
    assert results[0] != results[1]


def test_what_is_not_there_is_refused(device: Device, native: NativeEngine) -> None:
    role = load_role(device.folder)
    with pytest.raises(PartcError, match="there is no sub-module 'part_9'\n  hint: this device has part_1"):
        native.load("part_9")
    with pytest.raises(PartcError, match="'part_1' is not loaded"):
        native.run(PART, 0, [], role.dims)


def surround_weights(folder: Path, role: Role) -> None:
    """Put the device's weights between tensors that are large, as they lie in a model of some size."""
    (name,) = role.submodules[PART].weights
    weights = load_file(folder / name)
    filling = {name: np.full(2 << 20, 1.0, np.float32) for name in ("0.first", "~.last")}
    save_file({**weights, **filling}, folder / name)


@needs_large_pages
@pytest.mark.tvm
def test_weights_move_into_large_pages_while_steps_go_on(built: Path, tmp_path: Path) -> None:
    made = compiled(tmp_path, "tvm")
    surround_weights(made.folder, made.role)
    role = load_role(made.folder)
    right = act(make_engine(role, made.folder), role, seed=1)
    with NativeEngine([built / "engine"], made.folder) as engine:
        assert act(engine, role, seed=1) == right
        before = engine.large_bytes()
        while engine.settle():
            pass
        assert engine.large_bytes() >= before + (2 << 20)
        engine.release(PART)
        assert not engine.settle()
        assert act(engine, role, seed=1) == right


@pytest.mark.tvm
@pytest.mark.parametrize("name", ["library.so", "kernels.json"])
def test_code_is_run_only_where_its_digest_is_that_of_the_build(
    built: Path, tmp_path: Path, name: str
) -> None:
    folder = compiled(tmp_path, "tvm").folder
    with NativeEngine([built / "engine"], folder) as engine:
        engine.load(PART)
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(content)
    with (
        NativeEngine([built / "engine"], folder) as engine,
        pytest.raises(
            PartcError, match=f"{name}: the file is damaged: its SHA-256 is not that of build.json"
        ),
    ):
        engine.load(PART)


@pytest.mark.tvm
def test_entries_for_steps_that_others_share(built: Path, tmp_path: Path) -> None:
    """They may be wider than the states, also where another device keeps the ring from sharing steps: as wide as there
    are requests, or tokens of one.
    """
    made = compiled(tmp_path, "tvm")
    library = made.role.engine.library
    assert library is not None
    rows = made.role.model.max_sequence + 1
    functions = replace(library.functions[PART], entries=(*library.functions[PART].entries, (rows, 1)))
    engine = replace(made.role.engine, library=replace(library, functions={PART: functions}))
    for slots, message in (
        (rows, f"there is no function part_1_b{rows}_s1"),
        (2, rf"\[{rows}, 1\], which `dims` do not allow"),
    ):
        model = replace(made.role.model, max_requests=slots, step_requests=1)
        build = seal_build(replace(made.role.build, model=model, engine=engine))
        (made.folder / BUILD_FILE).write_text(canonical_json(build_json(build)))
        with pytest.raises(PartcError, match=message):
            make_engine(load_role(made.folder), made.folder).load(PART)
        stopped = PartcError if slots == rows else AssertionError  # it does not even start
        with pytest.raises(stopped, match=message), NativeEngine([built / "engine"], made.folder) as native:
            native.load(PART)


def decode(
    build: Path, command: Sequence[str | Path], prompts: Sequence[Sequence[int]], count: int
) -> list[list[int]]:
    """Greedy tokens of a ring of Python's cores over native engines."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        def started(role: Role, folder: Path) -> NativeEngine:
            engine = stack.enter_context(NativeEngine(command, folder))
            for name in role.running:
                engine.load(name)
            return engine

        patch.setattr(ring, "load_engine", started)
        return DirectRing(build).generate(prompts, count)


def example(folder: Path, arch: str, dtype: str, quantize: Quantization | None) -> Path:
    """A build of the example model for one device."""
    checkpoint = CheckpointFolder(ROOT / "examples/storyteller")
    config = ModelConfig(
        checkpoint, dtype=dtype, max_sequence=48, max_batch=2, max_requests=1, quantize=quantize
    )
    _build(simplified(config), _devices(folder, arch), folder / "build")
    return folder / "build"


PROMPTS = [[1, 40, 77, 130, 25, 300, 12], [1, 9, 200]]


@pytest.mark.in_turns(4)
@pytest.mark.tvm
@pytest.mark.hf
@pytest.mark.parametrize(
    ("dtype", "quantize"), [("bfloat16", None), ("float32", Quantization("int4", "int4", "int4"))]
)
def test_the_example_decodes_the_tokens_of_pythons_engine(
    built: Path, tmp_path: Path, dtype: str, quantize: Quantization | None
) -> None:
    build = example(tmp_path, "host", dtype, quantize)
    right = DirectRing(build).generate(PROMPTS, 24)
    assert decode(build, [built / "engine"], PROMPTS, 24) == right
    assert right[0] != right[1]
