"""Every kind of message that there is, and what its fields must be; docs/wire.md says what each is for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from partc.errors import RunError
from partc.format.dtypes import DTYPES


def check_fields(kind: object, fields: Mapping[str, Any]) -> None:
    """Hold a header against the table.

    Raises:
        RunError: an unknown kind, or a field too many, too few or wrong.
    """
    table = _KINDS.get(kind) if isinstance(kind, str) else None
    if table is None:
        raise RunError(f"a message of unknown kind {kind!r:.40}")
    for name, value in fields.items():
        if name not in table:
            raise RunError(f"a {kind} message with an unknown field {name!r:.40}")
        if not table[name](value):
            raise RunError(f"a {kind} message whose field {name!r} is wrong")
    missing = table.keys() - fields.keys() - _OPTIONAL
    if missing:
        raise RunError(f"a {kind} message whose field {min(missing)!r} is missing")


Check = Callable[[Any], bool]
_LISTS = (list, tuple)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**64


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _plan(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == 32


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, _LISTS) and all(map(check, value))


def _map_of(check: Check) -> Check:
    return lambda value: (
        isinstance(value, dict) and all(map(_text, value)) and all(map(check, value.values()))
    )


def _spec(value: Any) -> bool:
    if not isinstance(value, _LISTS) or len(value) != 3:
        return False
    name, dtype, shape = value
    return _text(name) and _text(dtype) and dtype in DTYPES and _counts(shape) and len(shape) <= 16


def _opening(value: Any) -> bool:
    fields = isinstance(value, dict) and set(value) == {"sampling", "trace"}
    return fields and _flag(value["trace"]) and _map_of(_number)(value["sampling"])


def _info(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= 64 and all(map(_text, value))


_counts = _list_of(_count)
_specs = _list_of(_spec)
_problem: dict[str, Check] = {"message": _text, "where": _or_none(_text), "hint": _or_none(_text)}
_COMMON: dict[str, Check] = {"v": _count, "kind": _text, "plan": _plan, "epoch": _count}
_OPTIONAL = frozenset({"open"})

_OWN_FIELDS: dict[str, dict[str, Check]] = {
    # Between devices, with the data.
    "data": {
        "session": _count,
        "seq": _count,
        "request": _count,
        "slot": _count,
        "step": _count,
        "phase": _text,
        "dims": _map_of(_count),
        "position": _counts,
        "length": _counts,
        "values": _specs,
        "open": _opening,
    },
    "ack": {"session": _count, "seq": _count},
    # The handshake of every connection; `info` tells a client the limits of the model.
    "hello": {"name": _text, "session": _count},
    "welcome": {"name": _text, "next": _count, "info": _info},
    "refuse": _problem,
    # Between the source and the other devices.
    "ready": {"next_request": _count},
    "close": {"request": _count, "report": _flag},
    "unready": {"lost": _text},
    "fail": {"request": _or_none(_count), **_problem},
    "stats": {"request": _count, "device": _text, "columns": _list_of(_text), "values": _specs},
    "trace": {"request": _count, "device": _text, "peer": _text, "step": _count, "values": _specs},
    "ping": {"token": _count},
    "pong": {"token": _count, "doing": _text},
    "shutdown": {},
    # Between the client and the source.
    "submit": {
        "request": _count,
        "prompts": _list_of(_counts),
        "texts": _list_of(_text),
        "max_new_tokens": _count,
        "sampling": _map_of(_number),
        "stop": _counts,
        "ignore_eos": _flag,
        "trace": _flag,
        "values": _specs,
    },
    "cancel": {"request": _count},
    # Between the client and a device that measures.
    "measure": {
        "request": _count,
        "submodule": _text,
        "dims": _map_of(_count),
        "position": _counts,
        "length": _counts,
        "sample": _text,
        "repeats": _count,
        "touch_bytes": _count,
    },
    "measured": {
        "request": _count,
        "load_s": _number,
        "reset_s": _number,
        "seconds": _list_of(_number),
        "delays": _list_of(_number),
    },
    "join": {"request": _count, "ring": _list_of(_text), "peers": _map_of(_text)},
    "joined": {"request": _count},
    "token": {
        "request": _count,
        "step": _count,
        "tokens": _list_of(_or_none(_count)),
        "texts": _list_of(_text),
    },
    "result": {
        "request": _count,
        "prompts": _list_of(_counts),
        "tokens": _list_of(_counts),
        "texts": _list_of(_text),
        "finish": _list_of(_text),
        "elapsed_s": _number,
        "values": _specs,
    },
    "error": {"request": _or_none(_count), **_problem},
}

_KINDS = {kind: {**_COMMON, **fields} for kind, fields in _OWN_FIELDS.items()}
"""Kind of message → field → whether its value is right."""
