"""The engine over compiled libraries and their plans: numbers, padding, slots, and what it refuses to load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from partc.bundle.writer import write_bundle
from partc.errors import BundleError, RunError
from partc.format.build import LibraryOptions, parse_build
from partc.format.dtypes import Array
from partc.format.role import Role, load_role
from partc.ir.text import parse_module
from partc.runtime.engines import processor
from partc.runtime.engines.contract import load_engine
from partc.runtime.engines.plan_library import usual_threads
from partc.runtime.engines.processor import check_processor
from partc.runtime.processor import usable_cores
from tests.bundle.tiny import MAX, WIDTH, module, numpy_logits, write_checkpoint
from tests.families.ring import DirectRing
from tests.runtime.bundles import resealed

pytestmark = pytest.mark.tvm

VIEW = """\
partc-ir 1
model {"dims": {"batch": 1, "sequence": 4}, "max_batch": 1, "max_sequence": 4, "max_requests": 2, "name": "view",
 "task": "text-generation"}
graph view opset 24 {
  input %x: f32[batch,sequence,6]
  const %shape = i64[4] [0, 0, 2, 3]
  %y: f32[batch,sequence,2,3] = Reshape(%x, %shape)
  output %y
}
part phone target tvm {
  program prefill
    run part_0 (x) -> (y)
    emit y
  end
  graph part_0 opset 24 {
    input %x: f32[batch,sequence,6]
    const %shape = i64[4] [0, 0, 2, 3]
    %y: f32[batch,sequence,2,3] = Reshape(%x, %shape)
    output %y
  }
}
""".replace("\n ", " ", 1)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers over two devices, with code for steps of 1 and of `MAX` rows."""
    folder = tmp_path_factory.mktemp("tvm")
    write_bundle(module(write_checkpoint(folder / "model"), "tvm"), folder / "build")
    return folder / "build"


def expected(prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(numpy_logits(np.array(tokens))[-1].argmax()))
    return tokens[len(prompt) :]


def test_prompts_of_all_lengths_and_a_batch_of_unequal_ones(build: Path) -> None:
    ring = DirectRing(build)
    prompts = [[3], [5, 1, 7, 2], [9, 4, 4, 8, 1, 6, 2]]
    right = [expected(prompt, 4) for prompt in prompts]
    assert [ring.generate([prompt], 4)[0] for prompt in prompts] == right
    assert ring.generate(prompts[1:], 4) == right[1:]
    assert ring.generate(prompts[:2], 4) == right[:2], "what the longer request left does not show"


def test_requests_in_flight_have_states_of_their_own(build: Path) -> None:
    prompts = [[5, 1, 7, 2], [9, 4, 4]]
    found = DirectRing(build).generate_together([[prompt] for prompt in prompts], 5)
    assert found == [[expected(prompt, 5)] for prompt in prompts]


@pytest.mark.parametrize(("batch", "rows"), [(1, MAX + 1), (3, 1), (3, MAX + 1)])
def test_a_step_that_no_function_is_large_enough_for(build: Path, batch: int, rows: int) -> None:
    folder = build / "devices" / "board"
    engine = load_engine(load_role(folder), folder)
    dims = {"batch": batch, "sequence": rows}
    whole = np.zeros(batch, np.int64)
    with pytest.raises(RunError, match=f"no code for {batch} sequences of {rows} tokens") as caught:
        engine.run("part_1", 0, [np.zeros((batch, rows, WIDTH), np.float32), whole, whole], dims)
    assert "larger max_sequence and max_batch" in (caught.value.hint or "")


def test_outputs_in_the_memory_of_inputs_are_copied_out_of_it(tmp_path: Path) -> None:
    """A reshape is a view: its result would change with the next request's input."""
    write_bundle(parse_module(VIEW), tmp_path / "build")
    folder = tmp_path / "build" / "devices" / "phone"
    engine = load_engine(load_role(folder), folder)
    for rows in (1, 3, 4):
        inputs = [np.full((1, rows, 6), value, np.float32) for value in (1, 2, 3)]
        found = [engine.run("part_0", 0, [x], {"batch": 1, "sequence": rows})[0] for x in inputs]
        for array, x in zip(found, inputs, strict=True):
            assert array.shape == (1, rows, 2, 3)
            np.testing.assert_array_equal(array.reshape(x.shape), x)


def test_inputs_may_lie_anywhere(build: Path) -> None:
    folder = build / "devices" / "board"
    engine = load_engine(load_role(folder), folder)
    hidden = np.random.default_rng(0).standard_normal((1, 3, WIDTH)).astype(np.float32)
    askew = np.frombuffer(b"\0" + hidden.tobytes(), np.uint8)[1:].view(np.float32).reshape(hidden.shape)
    strided = np.concatenate([hidden, hidden], axis=2)[:, :, :WIDTH]
    results: list[Array] = []
    for x in (hidden, askew, strided):
        engine.reset(0, {"batch": 1, "sequence": 3})
        inputs = [x, np.array([0]), np.array([3])]
        results += engine.run("part_1", 0, inputs, {"batch": 1, "sequence": 3})
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


LEAKY = """\
partc-ir 1
model {"dims": {"batch": 1, "sequence": 4}, "max_batch": 1, "max_sequence": 4, "name": "leaky",
 "task": "text-generation"}
graph leaky opset 24 {
  input %x: f32[batch,sequence,6]
  %y: f32[batch,sequence,6] = LeakyRelu(%x) {alpha = 0.5}
  output %y
}
part phone target tvm {
  program prefill
    run part_0 (x) -> (y)
    emit y
  end
  graph part_0 opset 24 {
    input %x: f32[batch,sequence,6]
    %y: f32[batch,sequence,6] = LeakyRelu(%x) {alpha = 0.5}
    output %y
  }
}
""".replace("\n ", " ", 1)


def test_a_library_that_was_compiled_anew_is_loaded_anew(tmp_path: Path) -> None:
    """By its name alone, the system would give the code that it has; its kernels are called as those of the new one."""
    folder, x = tmp_path / "build" / "devices" / "phone", -np.ones((1, 1, 6), np.float32)
    slopes, engines = (0.5, 0.25, 0.125), []
    for slope in slopes:
        write_bundle(parse_module(LEAKY.replace("0.5", str(slope))), tmp_path / "build")
        engines.append(load_engine(load_role(folder), folder))
    content = (folder / "library.so").read_bytes()
    (folder / "library.so").write_bytes(bytes(len(content)))  # in the place of the code of the last one
    for slope, engine in zip(slopes, engines, strict=True):
        (found,) = engine.run("part_0", 0, [x], {"batch": 1, "sequence": 1})
        np.testing.assert_array_equal(found, slope * x)


def loaded(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def copied(build: Path, folder: Path) -> tuple[Role, Path]:
    """A copy of a device's folder at a place that nothing was loaded from."""
    (folder / "weights").mkdir(parents=True)
    source = build / "devices" / "phone"
    for name in ("build.json", "placement.json", "library.so", "kernels.json", "weights/part_0.safetensors"):
        (folder / name).write_bytes((source / name).read_bytes())
    return load_role(folder), folder


def refused(role: Role, folder: Path, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        load_engine(role, folder)
    assert not loaded(folder / "library.so")


def test_a_library_is_loaded_if_it_is_the_one_of_the_build(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    engine = load_engine(role, folder)
    assert loaded(folder / "library.so")
    engine.release("part_0")
    assert not loaded(folder / "library.so")


def test_a_library_with_a_byte_changed_is_not_loaded(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    data = bytearray((folder / "library.so").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "library.so").write_bytes(data)
    refused(role, folder, "SHA-256 is not that of build.json")


def test_a_library_of_another_plan_is_not_loaded(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    (folder / "library.so").write_bytes((build / "devices" / "board" / "library.so").read_bytes())
    refused(role, folder, "SHA-256 is not that of build.json")


def test_a_library_that_is_a_link_is_not_loaded(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    (folder / "library.so").unlink()
    (folder / "library.so").symlink_to(build / "devices" / "phone" / "library.so")
    refused(role, folder, "symbolic link")


def test_a_library_for_another_processor_is_not_loaded(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    assert role.engine.library is not None
    other = replace(role.engine.library, platform="riscv64-linux-gnu")
    role = role.changed(engine=replace(role.engine, library=other))
    refused(role, folder, "the library is for riscv64-linux-gnu, and this machine is")


def test_a_library_for_features_that_this_processor_has_not(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    assert role.engine.library is not None
    other = replace(role.engine.library, needs=(*role.engine.library.needs, "telepathy"))
    role = role.changed(engine=replace(role.engine, library=other))
    refused(role, folder, "the library uses telepathy, which this processor has not")


@pytest.mark.parametrize(
    ("arch", "platform", "hint"),
    [
        ("aarch64", "aarch64-linux-android", "write `features: [neon]` in the `options` of the device"),
        ("x86_64", "x86_64-linux", "leave `features` and `arch: host` out of the device"),
    ],
)
def test_the_refusal_of_a_processor_says_what_it_has(
    monkeypatch: pytest.MonkeyPatch, arch: str, platform: str, hint: str
) -> None:
    monkeypatch.setattr(processor, "architecture", lambda: arch)
    monkeypatch.setattr(processor, "processor_features", lambda: frozenset(("fpu",)))
    with pytest.raises(BundleError, match="uses asimddp, which") as caught:
        check_processor(LibraryOptions(platform, ("fpu", "asimddp"), {}), Path("library.so"))
    assert hint in (caught.value.hint or "")


def test_an_entry_that_is_larger_than_the_states(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    assert role.engine.library is not None
    functions = replace(role.engine.library.functions["part_0"], entries=((1, 1), (1, MAX + 1)))
    library = replace(role.engine.library, functions={"part_0": functions})
    role = role.changed(engine=replace(role.engine, library=library))
    refused(role, folder, r"part_0 has an entry \[1, 13\], which `dims` do not allow")


def test_a_weight_that_is_in_no_file(build: Path, tmp_path: Path) -> None:
    role, folder = copied(build, tmp_path / "copy")
    assert role.engine.library is not None
    functions = replace(role.engine.library.functions["part_0"], weights=("nowhere",))
    library = replace(role.engine.library, functions={"part_0": functions})
    with pytest.raises(BundleError, match="no file of part_0 has the weight 'nowhere'"):
        load_engine(role.changed(engine=replace(role.engine, library=library)), folder)


@pytest.mark.parametrize(
    ("asked", "threads"),
    [("3", 3), ("2,1", 2), ("99999", 1024), ("many", None), ("0", None), ("-2", None), ("", None)],
)
def test_threads_that_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch, asked: str, threads: int | None
) -> None:
    """OMP_NUM_THREADS may be a list, one number for each level of nesting; what it cannot be is passed over."""
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usual_threads() == (threads or usable_cores())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"platform": "here"}, "engine.library.platform: expected `str` matching regex"),
        ({"platform": None}, "engine.library.platform: expected `str`, got `null`"),
        ({"needs": "avx2"}, "engine.library.needs: expected `array`, got `str`"),
        ({"libraries": []}, "engine.library: object contains unknown field `libraries`"),
        ({"functions": {}}, "engine.library.functions: 'part_0' is missing"),
        ({"functions": {"part_0": {"entries": [], "weights": []}}}, "entries: expected `array` of length >= 1"),
        ({"functions": {"part_0": {"entries": [[2, 12, 1]], "weights": []}}}, "expected `array` of length 2"),
        ({"functions": {"part_0": {"entries": [[2, 0]], "weights": []}}}, "expected `int` >= 1"),
        ({"functions": {"part_0": {"entries": [[2, 12]], "weights": [1]}}}, "expected `str`, got `int`"),
        ({"functions": {"part_0": {"entries": [[2, 12]]}}}, "missing required field `weights`"),
    ],
)  # fmt: skip
def test_builds_that_are_not_right(build: Path, change: dict[str, object], message: str) -> None:
    raw = json.loads((build / "devices" / "phone" / "build.json").read_text())
    raw["engine"]["library"].update(change)
    with pytest.raises(BundleError) as caught:
        parse_build(resealed(raw))
    assert message in caught.value.message


@pytest.mark.parametrize(
    "change", [{"kind": "whole"}, {"shape": ["batch", 2, 12]}, {"shape": ["batch", 2, "sequence", 8]}]
)
def test_a_state_that_cannot_lie_in_panels(build: Path, change: dict[str, object]) -> None:
    raw = json.loads((build / "devices" / "phone" / "build.json").read_text())
    (keys, values) = raw["submodules"][0]["states"]
    assert (keys["layout"], values["layout"]) == ("panels", "plain")
    keys.update(change)
    with pytest.raises(BundleError, match=r"layout of .*: only rows \[batch, heads, N, N\] lie in panels"):
        parse_build(resealed(raw))


def test_a_provider_that_the_engine_has_not(build: Path) -> None:
    raw = json.loads((build / "devices" / "phone" / "build.json").read_text())
    raw["engine"]["provider"] = "xnnpack"
    with pytest.raises(BundleError, match="the engine plan has no provider 'xnnpack'"):
        parse_build(resealed(raw))
