"""Inputs for readers that are nearly right: changes of bytes, and changes that know JSON, msgpack and programs."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack

from partc.format.json_text import MOST_LEVELS

_ODD = (
    *rb'" \ \u \ud800 { } [ ] : , -> # = == A= // *0 0 - -0 1e .5 1E400 null true'.split(),
    *(str(number).encode() for number in (10**18 - 1, 2**63, 2**64)),
    *(bytes([byte]) for byte in b"\0\n\r\x1f \x7f\x80\x90\xc0\xc1\xca\xcf\xd3\xff"),
    *(letter.encode(errors="surrogatepass") for letter in "\xa0\u2028\ufeff\ud800"),
)
"""Texts that readers may take for something else."""
_LIMITS = (0, 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64)
_ODD_JSON = (
    *(str(sign * number) for number in _LIMITS for sign in (1, -1)),
    *"-0 0.0 1.0 1e0 1E2 -1e-400 1e308 1E400 0.1 01 1. .5 +1 NaN Infinity -Infinity null true false".split(),  # noqa: SIM905
    *("9" * 20, "9" * 21, "9" * 4300, "1" + "0" * 18 + ".0"),
    *(
        r'"\ud800"',
        r'"\ud83d\ude00"',
        r'"\udc00\ud800"',
        r'"\u0000"',
        r'"\u001b[0m"',
        '"é"',
        '"\u2028"',
        '""',
        '"x"',
    ),
    *("[" * depth + "]" * depth for depth in (1, MOST_LEVELS - 3, MOST_LEVELS, MOST_LEVELS + 1, 3000)),
    *("{}", "[]", "[null]", '{"":0}', '"' + "a" * 400 + '"', '"' + "\u0661" * 70 + '"'),
)
"""Texts in place of a value."""


def mutants(rng: random.Random, name: str, known: Sequence[bytes], valid: Sequence[bytes]) -> Iterator[bytes]:
    """Inputs of a format, mostly valid ones, with something changed; without end."""
    aware = _AWARE.get(name)
    while True:
        made = rng.choice(known if rng.random() < 0.2 else valid)
        if aware is not None and rng.random() < 0.6:
            made = aware(rng, made)
        if aware is None or rng.random() < 0.6:
            made = _bytes_changed(rng, made, known)
        yield made


def _bytes_changed(rng: random.Random, content: bytes, known: Sequence[bytes]) -> bytes:
    """Some bytes changed, left out, put in, or taken from another input."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        begin = rng.randrange(len(made) + 1)
        end = min(len(made), begin + rng.choice((0, 0, 1, 1, 2, 8)))
        other = rng.choice(known)
        at = rng.randrange(len(other) + 1)
        odd = rng.choice(_ODD), bytes([rng.randrange(256)]), other[at : at + rng.choice((1, 4, 16))], b""
        made[begin:end] = rng.choice(odd)
    return bytes(made)


def _parts(value: Any) -> Iterator[Any]:
    """The lists and dicts in a value, it among them."""
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts(item)


class _Raw(str):
    """Text that stands in JSON unchanged."""

    __slots__ = ()


def _json_changed(rng: random.Random, content: bytes) -> bytes:
    """A value replaced, an entry left out, added or repeated, a key spelt with escapes; or another encoding of all."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return content
    holder = rng.choice([*_parts(data)] or [[]])
    for _ in range(rng.choice((1, 1, 2))):
        _change(rng, holder, _Raw(rng.choice(_ODD_JSON)))
    text = _written(data)
    return _encoded(rng, text) if rng.random() < 0.1 else text.encode(errors="surrogatepass")


def _change(rng: random.Random, holder: Any, odd: Any) -> None:
    """Change an entry of a list or of a dict."""
    keys = [*holder] if isinstance(holder, dict) else [*range(len(holder))]
    if not keys:
        return
    key, other = rng.choice(keys), rng.choice(keys)
    match rng.randrange(5):
        case 0 | 1:
            holder[key] = odd
        case 2:
            del holder[key]
        case 3:
            holder[key] = holder[other]
        case _ if isinstance(holder, list):
            holder.insert(key, holder[other])
        case _:  # a key that is there, once more, or one that is not
            holder[_Raw(_spelt(rng, rng.choice((str(key), str(key) + "x"))))] = holder[other]


def _spelt(rng: random.Random, key: str) -> str:
    """A key with some of its letters as escapes."""
    letters = (f"\\u{ord(letter):04x}" if rng.random() < 0.3 else json.dumps(letter)[1:-1] for letter in key)
    return f'"{"".join(letters)}"'


def _written(data: Any) -> str:
    if isinstance(data, _Raw):
        return str(data)
    if isinstance(data, dict):
        pairs = (
            f"{key if isinstance(key, _Raw) else json.dumps(key)}:{_written(item)}"
            for key, item in data.items()
        )
        return "{" + ",".join(pairs) + "}"
    if isinstance(data, list):
        return "[" + ",".join(map(_written, data)) + "]"
    return json.dumps(data, ensure_ascii=False)


def _encoded(rng: random.Random, text: str) -> bytes:
    plain = text.encode(errors="surrogatepass")
    return rng.choice(
        (
            b"\xef\xbb\xbf" + plain,
            text.encode("utf-16", errors="surrogatepass"),
            text.encode("utf-32", errors="surrogatepass"),
            plain.replace(b",", b",\r\n"),
            plain.replace(b",", b"\t, "),
            b"\x0b" + plain,
            plain + rng.choice((b"\n", b"\0", b",", b"{}", b"\xc2\xa0")),
        )
    )


# -- msgpack


def _message_changed(rng: random.Random, content: bytes) -> bytes:
    """A header with a value replaced, an entry left out or repeated, or numbers and lengths in longer forms."""
    try:
        data = msgpack.unpackb(content, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return content
    if rng.random() < 0.7:
        _change(rng, rng.choice([*_parts(data)] or [[]]), _odd_value(rng))
    return _packed(rng, data, rng.choice((0.0, 0.1, 1.0)), rng.choice((0.0, 0.0, 0.02)))


def _odd_value(rng: random.Random) -> Any:
    numbers = (number * sign for number in _LIMITS[:-1] for sign in (1, -1))
    fits = [number for number in numbers if -(2**63) <= number < 2**64]
    others: list[Any] = [
        1.0,
        float("nan"),
        float("inf"),
        -0.0,
        None,
        True,
        "",
        "é",
        b"",
        b"\0" * 32,
        [],
        {},
        [[[]]],
        "a" * 70,
    ]
    return rng.choice([*fits, *others, msgpack.ExtType(1, b"x"), msgpack.Timestamp(1)])


def _packed(rng: random.Random, value: Any, longer: float, lying: float) -> bytes:
    """Msgpack in which a share of the heads is longer than need be, and a share tells a wrong length."""

    def again(item: Any) -> bytes:
        return _packed(rng, item, longer, lying)

    def head(code: int, count: int) -> bytes:
        return struct.pack(
            ">BI", code, max(0, count + (rng.choice((-1, 1, 1000)) if rng.random() < lying else 0))
        )

    is_long = rng.random() < longer or rng.random() < lying
    match value:
        case dict():
            start = head(0xDF, len(value)) if is_long else msgpack.Packer().pack_map_header(len(value))
            return bytes(start) + b"".join(again(str(key)) + again(item) for key, item in value.items())
        case list():
            start = head(0xDD, len(value)) if is_long else msgpack.Packer().pack_array_header(len(value))
            return bytes(start) + b"".join(map(again, value))
        case str() if is_long:
            raw = value.encode()
            return head(0xDB, len(raw)) + raw
        case bytes() if is_long:
            return head(0xC6, len(value)) + value
        case bool() | None:
            return bytes(msgpack.packb(value))
        case int() if is_long:
            return struct.pack(">BQ", 0xCF, value) if value >= 0 else struct.pack(">Bq", 0xD3, value)
        case float() if is_long:
            return struct.pack(">Bf", 0xCA, value) if abs(value) < 1e30 else bytes(msgpack.packb(value))
    return bytes(msgpack.packb(value))


# -- programs, and headers of safetensors files


def _program_changed(rng: random.Random, content: bytes) -> bytes:
    """Lines or words that are left out, repeated, exchanged, or separated otherwise."""
    separator = rng.choice((b"\n", b" "))
    items = content.split(separator)
    match rng.randrange(4):
        case 0:
            del items[rng.randrange(len(items))]
        case 1:
            items.insert(rng.randrange(len(items)), rng.choice(items))
        case 2:
            rng.shuffle(items)
        case _:
            separator = rng.choice((b"\n\n", b"\r\n", b"\x0b", b"\t", b"\x85", "\u2028".encode(), b" # "))
    return separator.join(items)


def _file_changed(rng: random.Random, content: bytes) -> bytes:
    """A header that is changed as JSON, whose length is mostly told right."""
    size = int.from_bytes(content[:8], "little")
    header = _json_changed(rng, content[8 : 8 + size])
    told = len(header) + (rng.choice((-1, 1, 8, 2**62)) if rng.random() < 0.1 else 0)
    return struct.pack("<Q", max(0, told)) + header + content[8 + size :]


_AWARE: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "build": _json_changed,
    "json": _json_changed,
    "kernels": _json_changed,
    "message": _message_changed,
    "placement": _json_changed,
    "program": _program_changed,
    "safetensors": _file_changed,
}
