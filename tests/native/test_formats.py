"""The readers of native/src/format beside those of partc/format: the same data, the same verdicts."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partc.errors import BundleError
from partc.format import native
from partc.format.build import TensorType, build_json
from partc.format.codec import encode
from partc.format.digests import canonical_json, data_digest
from partc.format.fields import FRAME_LIMIT
from partc.format.json_text import parse_json
from partc.format.messages import Message
from partc.format.placement import placement_json, seal_placement
from partc.format.plain_files import is_inside
from partc.format.program import print_program
from partc.format.safetensors import Entry, lay_out
from tests.format import test_kernel_plan as plans
from tests.format.mutations import mutate
from tests.format.test_messages import KINDS, structs_of
from tests.format.test_program import ANY as INSTRUCTION
from tests.native.builds import build_of, resealed
from tests.native.formats import Formats, Refused, started
from tests.native.readers import (
    difference,
    read_build,
    read_json_again,
    read_kernels,
    read_message,
    read_placement,
    read_program,
    safetensors_reader,
    verdict,
)
from tests.runtime.roles import THREE, placement_of

SOURCES = Path(__file__).parents[2] / "native" / "src" / "format"
_SHARED = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
"""The process is the same for all examples, and keeps nothing of them."""


def test_generated_files_are_up_to_date() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in SOURCES.glob("*.gen.*")}
    assert found == native.files(), "python -m partc.format.native native/src/format"


@pytest.fixture(scope="module")
def formats(built: Path) -> Iterator[Formats]:
    with started(built / "formats") as process:
        yield Formats(process)


# -- messages


@pytest.mark.native
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@_SHARED
@given(data=st.data())
def test_messages(kind: type[Message], data: st.DataObject, formats: Formats) -> None:
    frame = encode(data.draw(structs_of(kind)))
    assert formats.read("message", frame) == frame


def check_message(formats: Formats, frame: bytes) -> bool:
    """Both readers say the same of some bytes; whether they take them for a message."""
    expected = verdict(read_message, frame)
    assert verdict(formats.read, "message", frame) == expected, frame
    return expected is not None


@pytest.mark.native
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@_SHARED
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_mutated_messages(kind: type[Message], data: st.DataObject, seed: int, formats: Formats) -> None:
    rng, frame = random.Random(seed), encode(data.draw(structs_of(kind)))
    assert check_message(formats, frame)
    for _ in range(30):
        mutant = bytearray(frame)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutant[rng.randrange(len(mutant))] = rng.choice(
                [rng.randrange(256), 0xC0, 0xC1, 0x80, 0x90, 0xFF]
            )
        cut = rng.randrange(len(mutant)) if rng.random() < 0.1 else len(mutant)
        check_message(formats, bytes(mutant[:cut]) + (b"\0" if rng.random() < 0.05 else b""))


_ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2**53, 2**62, 2**62 + 1, 2**63, 2**64 - 1, 0.5, -0.5, 1.0, 1e300, float("nan"), True, None, "", "x"),
    *("é" * 300, "é" * 301, b"", bytes(16), bytes(32), [], [1], [[1, 2]], {}, {"a": 1}, {"a": "b"}),
)  # fmt: skip


@pytest.mark.native
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(_SHARED, max_examples=2)
@given(data=st.data())
def test_any_value_in_any_field(kind: type[Message], data: st.DataObject, formats: Formats) -> None:
    whole = msgpack.unpackb(encode(data.draw(structs_of(kind))))
    for name in whole:
        for value in _ODD:
            check_message(formats, msgpack.packb({**whole, name: value}))
        check_message(formats, msgpack.packb({key: item for key, item in whole.items() if key != name}))
    check_message(formats, msgpack.packb({**whole, "another": 1}))


@pytest.mark.native
def test_other_headers_are_refused(formats: Formats) -> None:
    for frame in (
        b"",
        b"\xc0",
        b"\x80",
        b"\x90",
        msgpack.packb({"kind": "sleep"}),
        b"\xc7\x01\x05a",
        b"\x91" * 70000,
    ):
        with pytest.raises(Refused):
            formats.read("message", frame)
    with pytest.raises(Refused, match="at most 65536 are allowed"):
        formats.read("message", bytes(FRAME_LIMIT + 1))
    with pytest.raises(Refused, match="install the same version"):
        formats.read("message", msgpack.packb({"kind": "hello", "v": 3}))


# -- JSON

_TEXTS = st.text(st.characters(codec="utf-8"))
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**64, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner),
)  # fmt: skip


@pytest.mark.native
@settings(_SHARED, max_examples=100)
@given(data=_JSON, escapes=st.booleans())
def test_json(data: Any, escapes: bool, formats: Formats) -> None:
    text = json.dumps(data, ensure_ascii=escapes)
    assert formats.read("json", text).decode() == canonical_json(data)
    compact = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert formats.read("compact", text).decode() == compact


@pytest.mark.native
@settings(_SHARED, max_examples=100)
@given(data=_JSON, seed=st.integers(0, 2**32))
def test_mutated_json(data: Any, seed: int, formats: Formats) -> None:
    rng, text = random.Random(seed), json.dumps(data).encode()
    for _ in range(20):
        mutant = bytearray(text)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutant[rng.randrange(len(mutant))] = rng.choice(
                b'"\\{}[]:,0123456789.eE+- \t\nutrfalsn\x00\x7f\x80\xc3\xff'
            )
        same_json(formats, bytes(mutant))


@pytest.mark.native
@pytest.mark.parametrize(
    "text",
    (
        *("01", "-", "-0", "1.", ".5", "1e", "1e5", "1E+05", "1e400", "1e-400", "-1e-400", "NaN", "Infinity", "0x1"),
        *("18446744073709551615", "18446744073709551616", "-18446744073709551615", "9" * 30, "[1,]", "{,}", "[", "]"),
        *(r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00"', r'"\ud83dx"', r'"\x41"', r'"\u12"', '"\t"', '"', "'a'"),
        *('{"a":1,"a":2}', '{"a":1,"\\u0061":2}', "{a:1}", '{"a" 1}', "[" * 64 + "]" * 64, "[" * 65 + "]" * 65),
        *("\ufeff1", " 1 ", "1 2", "", " ", "nul", "true", "truth", "1.0", "100000000000000000.0", "1e16", "12345e-13"),
    ),
)  # fmt: skip
def test_json_at_the_edge(text: str, formats: Formats) -> None:
    same_json(formats, text.encode())


def same_json(formats: Formats, text: bytes) -> None:
    assert verdict(formats.read, "json", text) == verdict(read_json_again, text), text


# -- sizes, digests, names


@pytest.mark.native
@pytest.mark.parametrize(
    "text",
    (
        *("batch", "2*sequence + 1", "-batch + sequence", "(batch+1)*(sequence-2)//2", "-7//2 + 9", "--batch"),
        "7//-2 + 9",
        *("", " ", "batch batch", "1/2", "2**3", "3 // 0", "batch.x", "1e3", "007", "0", "00", "()", "(1", "1)"),
        "9" * 19,
        *("9" * 18, "a" * 2001, "(" * 150 + "1" + ")" * 150, "unknown", "1 - 2", "batch*sequence*1000000007", "+1"),
    ),
)  # fmt: skip
def test_sizes(text: str, formats: Formats) -> None:
    def size() -> bytes:
        try:
            (found,) = TensorType("float32", (text,)).sizes({"batch": 3, "sequence": 7})
        except KeyError as error:
            raise ValueError from error
        return str(found).encode()

    assert verdict(formats.read, "size", text) == verdict(size)


@pytest.mark.native
@_SHARED
@given(content=st.binary() | st.integers(50, 200).map(bytes))
def test_digests(content: bytes, formats: Formats) -> None:
    expected = hashlib.sha256(content).hexdigest()
    assert formats.read("digest", content).decode() == expected
    assert formats.read("plain digest", content).decode() == expected


@pytest.mark.native
@pytest.mark.parametrize(
    "name", ["a", "a/b", "/a", "..", "a/../b", "a/..b", ".", "./a", "", "a\\b", "a\0", "//a", "a//b", "./."]
)
def test_paths(name: str, formats: Formats) -> None:
    assert formats.read("inside", name) == (b"yes" if is_inside(name) else b"no")


# -- files of a bundle


@pytest.mark.native
def test_builds(formats: Formats) -> None:
    data = build_json(build_of())
    assert formats.read("build", json.dumps(data)).decode() == canonical_json(data)


@pytest.mark.native
def test_mutated_builds(formats: Formats) -> None:
    rng, taken = random.Random(3), 0
    for _ in range(400):
        data = build_json(build_of())
        for _ in range(rng.randint(1, 2)):
            mutate(data, rng)
        sealed = resealed(data) if rng.random() < 0.9 else data
        expected = verdict(read_build, json.dumps(sealed).encode())
        assert verdict(formats.read, "build", json.dumps(sealed)) == expected, sealed
        taken += expected is not None
    assert 20 < taken < 380, "some mutations are harmless, most are not"


def placement_data() -> Any:
    """A ring of three with everything that a placement may have."""
    placement = placement_of(THREE, ("d",), {"prefill_s": 1.5e-5, "decode_s": 1.0, "prefill_tokens": 32.0})
    mirrored = msgspec.structs.replace(
        placement, mirrors={"body": "d"}, addresses={**placement.addresses, "a": "x:1"}
    )
    return placement_json(seal_placement(mirrored))


@pytest.mark.native
def test_placements(formats: Formats) -> None:
    data = placement_data()
    assert formats.read("placement", json.dumps(data)).decode() == canonical_json(data)


@pytest.mark.native
def test_a_placement_that_leaves_out_what_ours_spells_out(formats: Formats) -> None:
    data = placement_data()
    for stages in data["stages"].values():
        del stages[0]["share"]
    data["placement_id"] = data_digest(
        {key: item for key, item in data.items() if key not in ("placement_id", "addresses")}
    )
    assert data != placement_data()
    assert formats.read("placement", json.dumps(data)).decode() == canonical_json(placement_data())
    assert read_placement(json.dumps(data).encode()) == canonical_json(placement_data()).encode()


@pytest.mark.native
def test_mutated_placements(formats: Formats) -> None:
    rng, taken = random.Random(5), 0
    for _ in range(600):
        data = placement_data()
        mutate(data, rng)
        if rng.random() < 0.9 and "placement_id" in data:
            rest = {key: item for key, item in data.items() if key not in ("placement_id", "addresses")}
            data["placement_id"] = data_digest(rest)
        expected = verdict(read_placement, json.dumps(data).encode())
        assert verdict(formats.read, "placement", json.dumps(data)) == expected, data
        taken += expected is not None
    assert 20 < taken < 580, "some mutations are harmless, most are not"


@pytest.mark.native
@settings(_SHARED, max_examples=60)
@given(program=st.lists(INSTRUCTION), seed=st.integers(0, 2**32))
def test_programs(program: list[Any], seed: int, formats: Formats) -> None:
    text = print_program(program)
    check_program(formats, text)
    rng = random.Random(seed)
    for _ in range(20 if text else 0):
        at, size = rng.randrange(len(text)), rng.choice([0, 1, 1])
        check_program(formats, text[:at] + rng.choice(' ,()"->#\\ab.1é\n\t{') + text[at + size :])


def check_program(formats: Formats, text: str) -> None:
    """Both read the same program."""
    assert not difference(formats, "program", read_program, text.encode())


@pytest.mark.native
def test_mutated_safetensors(formats: Formats, tmp_path: Path) -> None:
    header, entries = lay_out([Entry("a", "f32", (3, 2)), Entry("b", "i8", (64,)), Entry("é", "bf16", ())])
    whole = header + bytes(max(entry.offset + entry.bytes for entry in entries))
    rng, read, taken = random.Random(6), safetensors_reader(tmp_path), 0
    for turn in range(600):
        mutant = bytearray(whole)
        for _ in range(turn and rng.choice([1, 1, 2])):
            mutant[rng.randrange(len(header))] = rng.choice(b'0123456789,[]{}:"FIB\x00 x')
        found = verdict(formats.read, "safetensors", bytes(mutant))
        assert found == verdict(read, bytes(mutant)), bytes(mutant)
        taken += found is not None
    assert 10 < taken < 580, "some mutations are harmless, most are not"


@pytest.mark.native
@pytest.mark.parametrize("kernels", [plans.raw, plans.raw_for_gpu], ids=["processor", "gpu"])
def test_mutated_kernel_plans(formats: Formats, kernels: Callable[[], Any]) -> None:
    rng, taken = random.Random(4), 0
    for _ in range(600):
        data = kernels()
        for _ in range(rng.choice([0, 1, 1, 2])):
            mutate(data, rng)
        text = json.dumps(data).encode()
        found = verdict(formats.read, "kernels", text)
        assert found == verdict(read_kernels, text), data
        taken += found is not None
    assert 20 < taken < 580, "some mutations are harmless, most are not"


@pytest.mark.native
@pytest.mark.parametrize(("key", "value", "message"), plans.BAD_LAUNCHES)
def test_launches_that_are_not_right(
    formats: Formats, key: tuple[Any, ...], value: Any, message: str
) -> None:
    data = plans.raw_for_gpu()
    place = data
    for step in key[:-1]:
        place = place[step]
    place[key[-1]] = value
    with pytest.raises(Refused) as caught:
        formats.read("kernels", json.dumps(data))
    # Python words ranges otherwise.
    assert (message if message.startswith("launches") else "expected") in str(caught.value)


def test_every_message_has_a_struct() -> None:
    """A kind that is new stands in the generated files as well."""
    text = native.files()["messages.gen.hpp"]
    assert all(f'kind = "{kind.__struct_config__.tag}"' in text for kind in KINDS)
    assert (
        msgspec.json.encode(len(KINDS)) == str(text.count("static constexpr std::string_view kind")).encode()
    )


_LONG = "x" + 90 * "é"
_OF_OTHERS = (
    _LONG,
    "y" + 90 * "字",
    "😀" * 70,
    "\x1b]0;owned\x07",
    "\x85\x9b",
    "'",
    "\"'",
    "\\" * 70,
    "\n" * 40,
)


@pytest.mark.parametrize("text", _OF_OTHERS)
def test_texts_of_others_are_cut_at_whole_characters_as_in_python(text: str, formats: Formats) -> None:
    twice = f"{{{json.dumps(text)}:1,{json.dumps(text)}:2}}".encode()
    with pytest.raises(BundleError) as expected:
        parse_json(twice, "it", BundleError, None)
    with pytest.raises(Refused, match="stands twice") as found:
        formats.read("json", twice)
    assert expected.value.message in str(found.value)
    with pytest.raises(Refused) as unknown:
        formats.read("message", msgpack.packb({"v": 2, "kind": text}))
    assert f"{text!r:.40}" in str(unknown.value)
    with pytest.raises(Refused) as size:
        formats.read("size", f"?{text}")
    assert f"{f'?{text}'!r:.80}" in str(size.value)


@pytest.mark.parametrize("field", ["pad_token_id", "bos_token_id", "placeholder_token"])
def test_ids_of_tokens_have_64_bits(field: str, formats: Formats) -> None:
    taken = []
    for number in (-(2**63) - 1, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, 1 - 2**64):
        data = build_json(build_of())
        data["model"][field] = number
        text = json.dumps(resealed(data)).encode()
        assert not difference(formats, "build", read_build, text)
        taken += [number] if verdict(read_build, text) is not None else []
    assert taken == [-(2**63), 2**63 - 1]
