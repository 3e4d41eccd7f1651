"""Wire 2: every message comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgpack
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec import inspect

from partc.errors import BundleError, InternalError, RunError
from partc.format.codec import decode, encode
from partc.format.dtypes import DTYPES
from partc.format.fields import FRAME_LIMIT
from partc.format.frames import join_tensors, to_array, to_frame, to_frames
from partc.format.message_parts import Opening, Problem, Row, Sampling, TensorSpec
from partc.format.messages import (
    Ack,
    AnyMessage,
    Data,
    Error,
    Hello,
    MeasuringReply,
    MeasuringRequest,
    Message,
    Ping,
    Pong,
    Ready,
    Shutdown,
    SourceReply,
    Welcome,
)
from partc.format.messages.rights import RIGHTS, Party

KINDS: tuple[type[Message], ...] = get_args(AnyMessage)
DATA = Data(
    session=99,
    epoch=0,
    seq=4,
    phase="prefill",
    dims={"batch": 2, "sequence": 3},
    rows=(Row(7, 2, 0, 0, 3), Row(7, 3, 0, 0, 1)),
    values=(TensorSpec("x", "float32", (2, 3, 8)),),
    open=(Opening(7, Sampling(temperature=0.5, seed=5), True),),
)
HELLO = Hello(name="a", session=1, plan=bytes(32), placement=bytes(32), epoch=0, incarnation=2**64 - 1)


# -- values of every kind, made from the types of the fields


def values_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a field: of exactly the type and within the range that its struct declares."""
    match kind:
        case inspect.IntType(ge=least, le=most, lt=end):
            most = end - 1 if most is None and end is not None else most
            return st.integers(-(2**63) if least is None else least, 2**64 - 1 if most is None else most)
        case inspect.FloatType(ge=least, le=most):
            return st.floats(least, most, allow_nan=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.StrType():
            return st.text(st.characters(codec="utf-8"), max_size=9)
        case inspect.BytesType(min_length=size):
            return st.binary(min_size=size or 0, max_size=size or 9)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.UnionType(types=types):
            return st.one_of([values_of(each) for each in types])
        case inspect.VarTupleType(item_type=item, min_length=least):
            return st.lists(values_of(item), min_size=least or 0, max_size=3).map(tuple)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(values_of, items))
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=3)
        case inspect.StructType(cls=cls):
            return structs_of(cls)
        case inspect.Metadata(type=inner):
            return values_of(inner)
        case _:
            raise AssertionError(f"no values of {kind}")


def structs_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    if cls is Sampling:
        return st.builds(
            Sampling,
            temperature=st.floats(0, 1e300),
            top_k=st.integers(0, 2**64 - 1),
            top_p=st.floats(0, 1, exclude_min=True),
            seed=st.integers(0, 2**64 - 1),
        )
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    fields = {field.name: values_of(field.type) for field in described.fields}
    if cls is TensorSpec:
        fields["dtype"] = st.sampled_from(sorted(DTYPES))
    return st.fixed_dictionaries(fields).map(lambda given: cls(**given))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_round_trip(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(structs_of(kind))
    again = decode(encode(message), FRAME_LIMIT)
    assert type(again) is kind
    assert again == message


def test_every_kind_has_a_name_of_its_own_and_a_right() -> None:
    names = {kind.__struct_config__.tag for kind in KINDS}
    assert len(names) == len(KINDS)
    assert all(kind.__doc__ for kind in KINDS)
    assert set(KINDS) == set(Message.__subclasses__())
    assert tuple(RIGHTS) == KINDS, "one entry each, in the order of the union"
    assert all(RIGHTS.values())


def test_clients_and_measuring_devices_know_what_is_for_them() -> None:
    """A kind by its rights; and those that measuring devices take and send as a source does."""

    def by_right(sender: Party, receiver: Party) -> set[type[Message]]:
        pairs = {kind: [right[:2] for right in rights] for kind, rights in RIGHTS.items()}
        return {kind for kind, found in pairs.items() if (sender, receiver) in found}

    assert set(get_args(SourceReply)) == by_right(Party.SOURCE, Party.CLIENT)
    assert set(get_args(MeasuringReply)) == by_right(Party.METER, Party.CLIENT) | {Error, Pong}
    assert set(get_args(MeasuringRequest)) == by_right(Party.CLIENT, Party.METER) | {Ping, Shutdown}


def test_a_header_is_a_map_of_kind_and_fields() -> None:
    assert msgpack.unpackb(encode(Ack(session=1, epoch=2, seq=3))) == {
        "kind": "ack",
        "session": 1,
        "epoch": 2,
        "seq": 3,
    }


def test_a_decode_header_is_small() -> None:
    message = Data(
        session=2**47,
        epoch=0,
        seq=123,
        phase="decode",
        dims={"batch": 1, "sequence": 1},
        rows=(Row(3, 0, 40, 46, 1),),
        values=(TensorSpec("hidden_3", "float32", (1, 1, 64)),),
    )
    assert len(encode(message)) < 160


# -- strictness


def fields_of(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = msgpack.unpackb(encode(message))
    return found


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_cleanly(frame: bytes) -> None:
    with pytest.raises(RunError):
        decode(frame, FRAME_LIMIT)


@given(st.integers(0, len(encode(DATA)) - 1), st.integers(0, 255))
def test_changed_bytes_never_escape_the_checks(index: int, value: int) -> None:
    good = encode(DATA)
    try:
        message = decode(good[:index] + bytes([value]) + good[index + 1 :], FRAME_LIMIT)
    except RunError:
        return
    assert isinstance(message, Data)
    assert message.seq >= 0
    assert all(spec.dtype in DTYPES for spec in message.values)


@given(st.integers(0, len(encode(DATA)) - 1))
def test_a_header_that_is_cut_off(size: int) -> None:
    with pytest.raises(RunError, match="cannot be read") as caught:
        decode(encode(DATA)[:size], FRAME_LIMIT)
    assert caught.value.cause == "refused"


def test_bytes_behind_a_header() -> None:
    with pytest.raises(RunError, match="cannot be read"):
        decode(encode(DATA) + b"\xc0", FRAME_LIMIT)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary(max_size=9)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=9))
    | st.just(msgpack.Timestamp(5)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize("message", [DATA, HELLO], ids=["data", "hello"])
@given(data=st.data(), value=ANYTHING)
def test_any_value_in_any_field(message: Message, data: st.DataObject, value: Any) -> None:
    name = data.draw(st.sampled_from(sorted(fields_of(message))))
    try:
        again = decode(msgpack.packb({**fields_of(message), name: value}), FRAME_LIMIT)
    except RunError:
        return
    assert encode(again) == encode(msgspec.convert(msgspec.to_builtins(again), type(again), strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "dance"}, "Invalid value 'dance'"),
        ({"kind": 3}, "kind"),
        ({"seq": -1}, r"`int` >= 0 - at `\$.seq`"),
        ({"seq": True}, r"Expected `int`, got `bool` - at `\$.seq`"),
        ({"seq": 1.0}, r"Expected `int`, got `float` - at `\$.seq`"),
        ({"seq": "1"}, r"\$.seq"),
        ({"phase": None}, r"\$.phase"),
        ({"values": [["x", "object", [1]]]}, "'object' is no element type"),
        ({"values": [["x", "float32"]]}, "length"),
        ({"values": [["x", "float32", [1] * 17]]}, "length <= 16"),
        ({"values": [["x", "float32", [-1]]]}, ">= 0"),
        ({"rows": []}, "length >= 1"),
        ({"rows": [[1, 2, 3, 4]]}, "length"),
        ({"rows": [[1, 2, 3, 4, "5"]]}, r"\$.rows"),
        ({"open": [{"request": 1, "sampling": {"top_p": 0.0}}]}, "top_p|out of range"),
        ({"open": [{"request": 1, "sampling": {"self": 1}}]}, "unknown field `self`"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_wrong_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        decode(msgpack.packb({**fields_of(DATA), **changes}), FRAME_LIMIT)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=5)
@given(data=st.data())
def test_a_field_too_few_or_too_many(kind: type[Message], data: st.DataObject) -> None:
    fields = fields_of(data.draw(structs_of(kind)))
    with pytest.raises(RunError, match="unknown field"):
        decode(msgpack.packb({**fields, "more": 1}), FRAME_LIMIT)
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    for name in required | {"kind"}:
        with pytest.raises(RunError, match=f"{name}"):
            decode(msgpack.packb({key: value for key, value in fields.items() if key != name}), FRAME_LIMIT)


def test_digests_and_tickets_have_their_length() -> None:
    for name in ("plan", "placement"):
        with pytest.raises(RunError, match="length"):
            decode(msgpack.packb({**fields_of(HELLO), name: b"short"}), FRAME_LIMIT)
    with pytest.raises(RunError, match="length"):
        decode(msgpack.packb({"kind": "cancel", "ticket": b"short"}), FRAME_LIMIT)


@pytest.mark.parametrize("version", [1, 3, "2", None, 2.0])
def test_another_version_is_told_first(version: object) -> None:
    """Also where the rest of the header is another one."""
    for fields in ({**fields_of(HELLO), "v": version}, {"kind": "hello", "v": version, "who": "a"}):
        with pytest.raises(RunError, match=r"wire version .*, this end speaks 2|cannot be read") as caught:
            decode(msgpack.packb(fields), FRAME_LIMIT)
        assert caught.value.cause == "refused"
    with pytest.raises(RunError, match="wire version 1, this end speaks 2") as caught:
        decode(msgpack.packb({"v": 1, "kind": "hello", "plan": b""}), FRAME_LIMIT)
    assert caught.value.hint == "install the same version of partc on all devices"


def test_a_header_that_is_too_long() -> None:
    with pytest.raises(RunError, match="at most 100"):
        decode(encode(DATA), 100)


@pytest.mark.parametrize("frame", [b"\x91" * 60_000 + b"\xc0", b"\x81\xa1v" * 20_000 + b"\xc0"])
def test_deep_nesting(frame: bytes) -> None:
    with pytest.raises(RunError):
        decode(frame, FRAME_LIMIT)


def test_extensions_are_not_read() -> None:
    for code in (-1, 0, 5):
        value = msgpack.Timestamp(5) if code < 0 else msgpack.ExtType(code, b"1234")
        with pytest.raises(RunError, match="cannot be read"):
            decode(msgpack.packb({**fields_of(DATA), "seq": value}), FRAME_LIMIT)


def test_a_map_with_one_key_twice() -> None:
    """The last one counts, as everywhere in msgpack; nothing is checked twice with different outcomes."""
    good = encode(Ack(session=1, epoch=0, seq=2))
    doubled = bytes([good[0] + 1]) + good[1:] + msgpack.packb("seq") + msgpack.packb(5)
    message = decode(doubled, FRAME_LIMIT)
    assert message == Ack(session=1, epoch=0, seq=5)


# -- parts of messages


@given(st.dictionaries(st.sampled_from(["temperature", "top_k", "top_p", "seed", "self", "x"]), st.floats()))
def test_any_parameters(sampling: dict[str, float]) -> None:
    """A float is no count, however round it is."""
    fields = {**fields_of(DATA), "open": [{"request": 1, "sampling": sampling}]}
    if sampling.keys() & {"top_k", "seed", "self", "x"}:
        with pytest.raises(RunError):
            decode(msgpack.packb(fields), FRAME_LIMIT)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RunError("x", where="b", hint="y", cause="stalled"), "stalled"),
        (BundleError("x", where="b", hint="y"), "input"),
        (InternalError("x", where="b", hint="y"), "bug"),
    ],
)
def test_errors_keep_their_cause(error: RunError | BundleError | InternalError, cause: str) -> None:
    again = Problem.of(error).error()
    assert (again.message, again.where, again.hint, again.cause) == ("x", "b", "y", cause)


def test_a_problem_of_an_unknown_cause_is_refused() -> None:
    fields = {"kind": "refuse", "problem": {"cause": "mood", "message": "x"}}
    with pytest.raises(RunError, match="cause"):
        decode(msgpack.packb(fields), FRAME_LIMIT)


def test_facts_of_a_device() -> None:
    facts: dict[str, bool | int | float | str] = {"patience_s": 5.0, "cores": 4, "arch": "x", "ok": True}
    message = Welcome(name="a", incarnation=1, epoch=0, next=0, info=facts)
    assert decode(encode(message), FRAME_LIMIT) == message
    with pytest.raises(RunError):
        decode(msgpack.packb({**fields_of(message), "info": {str(n): n for n in range(65)}}), FRAME_LIMIT)


# -- tensors


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


def test_large_frames_are_not_copied() -> None:
    array = np.zeros(1 << 16, np.float32)
    frame = to_frame(array)
    array[5] = 7
    assert to_array(frame, "float32", array.shape)[5] == 7
    transposed = np.arange(1 << 14, dtype=np.float32).reshape(128, 128).T
    assert bytes(to_frame(transposed)) == transposed.tobytes()


@pytest.mark.parametrize("elements", [0, 1, FRAME_LIMIT // 8, FRAME_LIMIT // 8 + 1, FRAME_LIMIT])
def test_tensors_in_frames_that_everybody_takes(elements: int) -> None:
    first, second = np.arange(elements, dtype=np.float64), np.arange(3, dtype=np.int32)
    frames = [*to_frames(first), *to_frames(second)]
    assert all(0 < frame.nbytes <= FRAME_LIMIT for frame in frames)
    assert len(frames) == math.ceil(elements * 8 / FRAME_LIMIT) + 1
    specs = [TensorSpec("first", "float64", (elements,)), TensorSpec("second", "int32", (3,))]
    again = join_tensors(specs, frames)
    np.testing.assert_array_equal(again["first"], first)
    np.testing.assert_array_equal(again["second"], second)
    assert again["first"].flags.writeable


def test_numbers_of_requests_have_room_above_those_that_a_device_may_name() -> None:
    placement = bytes(32)
    most = encode(Ready(next_request=2**62, placement=placement, epoch=0, incarnation=1))
    assert decode(most, FRAME_LIMIT) == Ready(next_request=2**62, placement=placement, epoch=0, incarnation=1)
    for number in (2**62 + 1, 2**64 - 1):
        with pytest.raises(RunError, match="next_request"):
            decode(
                encode(Ready(next_request=number, placement=placement, epoch=0, incarnation=1)), FRAME_LIMIT
            )
