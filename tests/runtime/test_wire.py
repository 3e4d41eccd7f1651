from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from partc.errors import RunError
from partc.format.dtypes import DTYPES, as_float32
from partc.format.role import Role, load_role
from partc.runtime.wire import (
    MIN_FRAME_LIMIT,
    Data,
    Opening,
    Step,
    awaited,
    check_step,
    check_values,
    decode,
    encode_control,
    encode_data,
    frame_limit,
    read_data,
    to_array,
    to_frame,
)
from tests.runtime.bundles import HIDDEN, LENGTH, language_model

PLAN = bytes(range(32))
STEP = Step(7, 1, 0, "prefill", {"batch": 2, "sequence": 3}, (0, 0), (3, 1), Opening({"seed": 5}, True))
DATA = Data(PLAN, 0, 99, 4, STEP, (("x", "float32", (2, 3, 8)),))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Role:
    build: Path = language_model("null").write(tmp_path_factory.mktemp("wire") / "build")
    return load_role(build / "devices" / "b")


def test_round_trip() -> None:
    assert read_data(decode(encode_data(DATA), MIN_FRAME_LIMIT)) == DATA
    later = replace(DATA, step=replace(STEP, step=1, phase="decode", opening=None))
    assert read_data(decode(encode_data(later), MIN_FRAME_LIMIT)) == later


def test_a_decode_header_is_small() -> None:
    step = Step(3, 0, 40, "decode", {"batch": 1, "sequence": 1}, (46,), (1,))
    assert len(encode_data(Data(PLAN, 0, 2**47, 123, step, (("hidden_3", "float32", (1, 1, 64)),)))) < 256


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_cleanly(frame: bytes) -> None:
    with pytest.raises(RunError):
        decode(frame, MIN_FRAME_LIMIT)


@given(st.integers(0, len(encode_data(DATA)) - 1), st.integers(0, 255))
def test_changed_bytes_never_escape_the_checks(index: int, value: int) -> None:
    good = encode_data(DATA)
    try:
        data = read_data(decode(good[:index] + bytes([value]) + good[index + 1 :], MIN_FRAME_LIMIT))
    except RunError:
        return
    assert isinstance(data.seq, int)
    assert all(dtype in DTYPES for _, dtype, _ in data.values)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.sampled_from(sorted(msgpack.unpackb(encode_data(DATA)))), JSON)
def test_any_value_in_any_field(name: str, value: Any) -> None:
    fields = {**msgpack.unpackb(encode_data(DATA)), name: value}
    try:
        read_data(decode(msgpack.packb(fields), MIN_FRAME_LIMIT))
    except RunError:
        return


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": 2}, "wire version 2"),
        ({"kind": "dance"}, "unknown kind"),
        ({"plan": b"short"}, "'plan'"),
        ({"seq": -1}, "'seq'"),
        ({"seq": True}, "'seq'"),
        ({"values": [["x", "object", [1]]]}, "'values'"),
        ({"position": "00"}, "'position'"),
        ({"more": 1}, "unknown field 'more'"),
    ],
)
def test_wrong_fields(changes: dict[str, Any], message: str) -> None:
    fields = {**msgpack.unpackb(encode_data(DATA)), **changes}
    with pytest.raises(RunError, match=message):
        decode(msgpack.packb(fields), MIN_FRAME_LIMIT)


def test_a_missing_field() -> None:
    fields = msgpack.unpackb(encode_data(DATA))
    del fields["slot"]
    with pytest.raises(RunError, match="'slot' is missing"):
        decode(msgpack.packb(fields), MIN_FRAME_LIMIT)


def test_a_header_that_is_too_long() -> None:
    with pytest.raises(RunError, match="at most 100"):
        decode(encode_data(DATA), 100)


def test_deep_nesting() -> None:
    with pytest.raises(RunError):
        decode(b"\x91" * 60_000 + b"\xc0", MIN_FRAME_LIMIT)


def test_control_fields_are_checked_when_sent() -> None:
    assert decode(encode_control("ack", PLAN, 0, {"session": 1, "seq": 2}), MIN_FRAME_LIMIT)["seq"] == 2
    with pytest.raises(RunError, match="'seq'"):
        encode_control("ack", PLAN, 0, {"session": 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot": 3}, "slot 3, there are 3"),
        ({"phase": "decode"}, "no step of 'decode'"),
        ({"phase": "warmup"}, "no step of 'warmup'"),
        ({"step": 1}, "no step of 'prefill'"),
        ({"opening": None}, "opened by its step 0"),
        ({"dims": {"batch": 4, "sequence": 3}}, "batch is 4, at most 3"),
        ({"dims": {"batch": 2, "sequence": LENGTH + 1}}, f"sequence is {LENGTH + 1}"),
        ({"dims": {"batch": 2, "width": 1}}, "width is 1, at most 0"),
        ({"position": (0,)}, "1 positions"),
        ({"length": (3, 4)}, "4 of 3 tokens"),
        ({"length": (3, 0)}, "0 of 3 tokens"),
        ({"position": (0, LENGTH - 2)}, "max_sequence"),
    ],
)
def test_steps_beyond_the_plan(manifest: Role, changes: dict[str, Any], message: str) -> None:
    check_step(STEP, manifest)
    with pytest.raises(RunError, match=message):
        check_step(replace(STEP, **changes), manifest)


SIZE = 2 * 3 * HIDDEN * 4


@pytest.mark.parametrize(
    ("spec", "size", "message"),
    [
        (("hidden_9", "float32", (2, 3, HIDDEN)), SIZE, "does not belong"),
        (("hidden_1", "float16", (2, 3, HIDDEN)), SIZE // 2, "is float16, the plan says float32"),
        (("hidden_1", "float32", (2, 3, HIDDEN + 1)), SIZE, "has the shape"),
        (("hidden_1", "float32", (2, 2, HIDDEN)), SIZE, "has the shape"),
        (("hidden_1", "float32", (2, 3, HIDDEN)), SIZE - 1, "bytes"),
        (("hidden_1", "float32", (2, 3, HIDDEN)), SIZE + 4, "bytes"),
    ],
)
def test_values_unlike_the_plan(manifest: Role, spec: Any, size: int, message: str) -> None:
    right = ("hidden_1", "float32", (2, 3, HIDDEN))
    check_values([right], [SIZE], manifest.types, STEP.dims)
    with pytest.raises(RunError, match=message):
        check_values([spec], [size], manifest.types, STEP.dims)
    with pytest.raises(RunError, match="1 tensors are announced, 2 came"):
        check_values([right], [SIZE, SIZE], manifest.types, STEP.dims)


def test_caps_come_from_the_plan(manifest: Role) -> None:
    assert awaited(manifest) == {(phase, "a", ("hidden_1",)) for phase in ("prefill", "decode")}
    assert frame_limit(manifest) == MIN_FRAME_LIMIT
    large = manifest.changed(dims={"batch": 3, "sequence": 4096})
    assert frame_limit(large) == 3 * 4096 * HIDDEN * 4


@given(st.data(), st.sampled_from([name for name in DTYPES if name != "bfloat16"]))
def test_tensors_round_trip(data: st.DataObject, dtype: str) -> None:
    array = data.draw(hnp.arrays(DTYPES[dtype], hnp.array_shapes(min_dims=0, min_side=0)))
    again = to_array(bytes(to_frame(array)), dtype, array.shape)
    assert again.dtype == DTYPES[dtype]
    assert again.tobytes() == array.tobytes()


def test_unaligned_frames() -> None:
    array = np.arange(10, dtype=np.float64)
    shifted = memoryview(b"x" + array.tobytes())[1:]
    again = to_array(shifted, "float64", (10,))
    assert again.flags.aligned
    assert np.array_equal(again, array)


def test_bfloat16() -> None:
    bits = np.array([0x3F80, 0xC000, 0x7F80], np.uint16)
    assert as_float32(bits, "bfloat16").tolist() == [1.0, -2.0, float("inf")]
