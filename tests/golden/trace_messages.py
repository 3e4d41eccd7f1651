"""Messages in traces: only the fields that matter are written; the others have the values that this file gives them.

| field | value where it is not written |
| --- | --- |
| `name`, `device` | the sender of the message |
| `shares` | of a device: whether the build has shared steps |
| `session`, `incarnation` | 1 |
| `plan`, `epoch` | those of the device's role, as it starts |
| `placement` | the compiled one under the message's epoch; names are those of the file's placements |
| `rows` | `[request.step@position+length/row^branch, …]`; `/row` is left out for the n-th row where the row is n |
| `branch` | 0 |
| `busy_s` | null |
| `dims` | `batch`: the number of rows, `sequence`: the largest length |
| values | names alone are floats, all 0, of the type and shape that the role gives them; integers are written |
| `open` | a greedy request without a trace in step 0, nothing in the others |
| `ticket`, `plan`, `placement` | a text stands for its bytes, filled up with zeros |
| `problem` | its cause, or `cause(where)`; message and hint are for people, so they are a comment |
| `values` of `submit` | names alone: inputs of the model, all 0 |
| `values` of `crossed`, `trace`, `result` | names alone; shapes are not written |
| `vitals`, `ring` | as their structs say; `epoch` and `placement` of a ring are those of the role |
| `timings`, `stats` | `steps` alone is written: how many rows the table has |
| `requests` | of `prepare`: slot 0; of `commit`: greedy, without a trace, in slot 0, from its beginning |
| `stands_still`, `waits` | false, true |
| `want` | `begin`, `end` and `part` 0 |
| `rows` | `begin`, `part`, `row`, `position` 0; `parts`, `sequences` 1; `SUBMODULE.state`; `shape`: of the values |
| frames of `prepare`, `place` | `placement` is the name of the placement whose text they hold |
| `elapsed_s`, `doing`, `info` | never written: they are for people, or differ from run to run |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec
import numpy as np

from partc.format.build import TensorType
from partc.format.dtypes import DTYPES, Array
from partc.format.frames import to_array
from partc.format.message_parts import (
    Likely,
    Opening,
    Problem,
    Reached,
    Resumption,
    Row,
    Sampling,
    TensorSpec,
)
from partc.format.messages import (
    CLIENT,
    AnyMessage,
    Commit,
    Data,
    Hello,
    Message,
    Place,
    Prepare,
    Prepared,
    Rows,
    Stats,
    Status,
    Submit,
    Timings,
    Want,
)
from partc.format.placement import Placement, placement_frames, read_placement
from partc.format.role import Role
from partc.format.status import RingStatus, Vitals
from partc.runtime.core.commands import Frame
from tests.golden.trace_setting import COMPILED, Setting
from tests.golden.trace_values import Call, TraceError, print_call, print_value

KINDS: Mapping[str, type[Message]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyMessage)}
_BYTES = {"ticket": 16, "plan": 32, "placement": 32}
_NEVER = ("elapsed_s", "doing", "info", "columns", "v")
_SIMPLE = {
    "session": 1, "incarnation": 1, "next": 0, "next_request": 0, "earlier": False, "token": 0, "computing": False,
    "sampling": Sampling(), "stop": (), "ignore_eos": False, "trace": False, "report": False, "values": (),
    "elapsed_s": 0.0, "doing": "", "info": {}, "columns": ("step",), "max_new_tokens": 1, "v": 2, "address": "",
    "known": (), "replayed": 0, "mismatches": 0, "have": (), "holders": {}, "addresses": {}, "requests": (),
    "begin": 0, "part": 0, "parts": 1, "row": 0, "position": 0, "from_step": 0, "stands_still": False, "waits": True,
    "ends": False, "reason": "", "likely": (), "reuse": False,
    "reused": 0, "drafts": False, "expected": (), "drafted": 0, "accepted": 0,
}  # fmt: skip


_ITEMS: Mapping[type[msgspec.Struct], Mapping[str, Any]] = {
    Reached: {"slot": 0},
    Resumption: {"slot": 0, "sampling": Sampling(), "trace": False, "step": 0, "phase": "", "ends": ()},
}
"""Values in `requests` that are not written."""


def read_message(call: Call, setting: Setting, sender: str) -> tuple[Message, list[memoryview]]:
    """The message that a call describes, and its frames.

    Raises:
        TraceError: it has no such kind or field.
    """
    if call.name not in KINDS:
        raise TraceError(f"{call.name!r} is no kind of message")
    kind = KINDS[call.name]
    if kind is Data:
        return _read_data(call, setting.role)
    given = {key: _field(key, item) for key, item in call.named.items() if key != "placement"}
    epoch = given.get("epoch", 0)
    fields = {**_defaults(kind, setting, sender, epoch), **_placement(call, setting, epoch), **given}
    specs: list[TensorSpec] = []
    if kind in (Prepare, Commit):
        usual = _ITEMS[Reached if kind is Prepare else Resumption]
        fields["requests"] = [{**usual, **item} for item in fields["requests"]]
    if kind is Place:
        fields.pop("placement", None)
    if kind in (Prepare, Place):
        return _converted(fields, kind), _text(setting.placement(call.named["placement"], epoch))
    if kind is Rows:
        fields = {**_of_rows(given["submodule"], given.get("parts", 1)), **fields}
        shapes = [tuple(fields.pop("shape"))] if "shape" in fields else []
        specs = [TensorSpec(fields["state"], "float32", shape) for shape in shapes]
        fields["values"] = specs
    elif kind in (Timings, Stats):
        specs = [TensorSpec("timing", "float64", (fields.pop("steps", 0), 1))]
        fields["values"] = specs
    elif kind is Submit and fields["values"]:
        specs = [_given(setting.role, name) for name in fields["values"]]
        fields["values"] = specs
    elif fields.get("values"):
        specs = [TensorSpec(name, setting.role.types[name].dtype, ()) for name in fields["values"]]
        fields["values"] = specs
    if kind.__name__ == "Token" and "finish" not in fields:
        fields["finish"] = [""] * len(fields["tokens"])
    if kind.__name__ == "Result" and "finish" not in fields:
        fields["finish"] = ["length"] * len(fields["tokens"])
    if "ring" in fields:
        fields["ring"] = {**_in_force(setting), **fields["ring"]}
    return _converted(fields, kind), _zeros(specs)


def _given(role: Role, name: str) -> TensorSpec:
    declared = role.inputs[name]
    return TensorSpec(name, declared.dtype, tuple(declared.sizes(role.dims)))


def print_message(message: Message, frames: Sequence[Frame], setting: Setting, sender: str) -> str:
    """The text of a message; a comment holds what people are told."""
    name = str(type(message).__struct_config__.tag)
    if isinstance(message, Data):
        return _print_data(message, frames, setting.role)
    epoch = getattr(message, "epoch", 0)
    defaults = _defaults(type(message), setting, sender, epoch)
    named = {}
    if isinstance(message, Place):
        named["placement"] = _name_of(read_placement(b"".join(frames), name).placement_id, setting, epoch)
    if isinstance(message, Prepare):
        del defaults["placement"]
    if isinstance(message, Rows):
        defaults.update(_of_rows(message.submodule, message.parts))
    for key, value in msgspec.structs.asdict(message).items():
        if key in _NEVER or (key in defaults and value == defaults[key]):
            continue
        named[key] = _name_of(value.hex(), setting, epoch) if key == "placement" else _print_field(key, value)
    if isinstance(message, Status):
        known = _in_force(setting)
        named["ring"] = print_value({k: v for k, v in _told(message.ring).items() if known.get(k) != v})
    if isinstance(message, Timings | Stats):
        named["steps"] = str(message.values[0].shape[0])
        named.pop("values")
    if isinstance(message, Rows) and message.values:
        named.pop("values")
        named["shape"] = print_value(message.values[0].shape)
    if isinstance(message, KINDS["token"]) and not any(message.finish):  # type: ignore[attr-defined]
        named.pop("finish")
    if isinstance(message, KINDS["result"]) and set(message.finish) == {"length"}:  # type: ignore[attr-defined]
        named.pop("finish")
    problem = getattr(message, "problem", None)
    return print_call(name, (), named) + (
        f"  # {problem.message}" if problem is not None and problem.message else ""
    )


def print_values(arrays: Iterable[tuple[str, Any]]) -> list[str]:
    """Floats by name alone, integers with what they are."""
    return [
        f"{name}={print_value(array.tolist())}" if array.dtype.kind == "i" else name for name, array in arrays
    ]


def zeros(declared: TensorType, dims: Mapping[str, int]) -> Any:
    """A tensor of a type."""
    return np.zeros(declared.sizes(dims), DTYPES[declared.dtype])


def rows_of_state(role: Role, submodule: str, rows: int) -> Array:
    """Rows of the first state of a sub-module, all 0."""
    state = role.submodules[submodule].states[0]
    return np.zeros((rows, 1, int(state.shape[-1])), DTYPES[state.dtype])


def print_problem(problem: Problem) -> str:
    """Cause and place."""
    return problem.cause if problem.where is None else f"{problem.cause}({problem.where})"


def read_problem(text: str) -> Problem:
    """The inverse, without message and hint."""
    cause, bracket, where = text.partition("(")
    return msgspec.convert(
        {"cause": cause, "message": "", "where": where.rstrip(")") if bracket else None}, Problem
    )


# -- data


def _read_data(call: Call, role: Role) -> tuple[Data, list[memoryview]]:
    phase, *names = call.bare
    rows = [_row(item["row"], index) for index, item in enumerate(call.named["rows"])]
    dims = call.named.get("dims", _dims(rows))
    known = {key: call.named[key] for key in call.named if key in Data.__struct_fields__}
    contents = {key: np.array(item, np.int64) for key, item in call.named.items() if key not in known}
    arrays = {name: zeros(role.types[name], dims) for name in names} | contents
    specs = tuple(TensorSpec(name, _dtype(array), array.shape) for name, array in arrays.items())
    frames = [memoryview(array.tobytes()) for array in arrays.values()]
    if "values" in known:
        specs = msgspec.convert(known["values"], tuple[TensorSpec, ...])
        frames = _zeros(specs)
    fields = {
        "session": 1,
        "epoch": role.epoch,
        "open": _opening(rows),
        "likely": (),
        "busy_s": None,
        **known,
    }
    return Data(
        session=fields["session"], epoch=fields["epoch"], seq=fields["seq"], phase=phase, dims=dims, rows=tuple(rows),
        values=specs, open=tuple(_read_opening(item) for item in fields["open"]),
        likely=msgspec.convert(fields["likely"], tuple[tuple[Likely, ...], ...]),
        busy_s=fields["busy_s"],
    ), frames  # fmt: skip


def _print_data(data: Data, frames: Sequence[Frame], role: Role) -> str:
    named = {}
    if data.session != 1:
        named["session"] = str(data.session)
    if data.epoch != role.epoch:
        named["epoch"] = str(data.epoch)
    named["seq"] = str(data.seq)
    named["rows"] = f"[{', '.join(_print_row(row, index) for index, row in enumerate(data.rows))}]"
    if data.dims != _dims(data.rows):
        named["dims"] = print_value(data.dims)
    if data.open != tuple(_opening(data.rows)):
        named["open"] = print_value(
            msgspec.to_builtins([difference(item, Opening(item.request, Sampling())) for item in data.open])
        )
    if data.busy_s is not None:
        named["busy_s"] = print_value(data.busy_s)
    if data.likely:
        named["likely"] = print_value(msgspec.to_builtins(data.likely))
    if [list(spec.shape) for spec in data.values] != [
        list(role.types[spec.name].sizes(data.dims)) if spec.name in role.types else None
        for spec in data.values
    ]:
        named["values"] = print_value([[spec.name, spec.dtype, spec.shape] for spec in data.values])
        return print_call("data", [data.phase], named)
    arrays = [
        (spec.name, to_array(frame, spec.dtype, spec.shape))
        for spec, frame in zip(data.values, frames, strict=True)
    ]
    text = print_call("data", [data.phase], named)
    return f"{text[:-1]}, {', '.join(print_values(arrays))})"


def _read_opening(item: Any) -> Opening:
    return item if isinstance(item, Opening) else msgspec.convert({"sampling": {}, **item}, Opening)


def _row(numbers: list[int], index: int) -> Row:
    request, row, step, position, length, branch = numbers
    return Row(request, index if row is None else row, step, position, length, branch or 0)


def _print_row(row: Row, index: int) -> str:
    slot = "" if row.row == index else f"/{row.row}"
    branch = f"^{row.branch}" if row.branch else ""
    return f"{row.request}.{row.step}@{row.position}+{row.length}{slot}{branch}"


def _dims(rows: Sequence[Row]) -> dict[str, int]:
    return {"batch": len(rows), "sequence": max(row.length for row in rows)}


def _opening(rows: Sequence[Row]) -> list[Opening]:
    return [Opening(rows[0].request, Sampling())] if rows[0].step == 0 else []


# -- placements


def _placement(call: Call, setting: Setting, epoch: int) -> dict[str, bytes]:
    """The field that names a placement by its digest, where a name is given."""
    name = call.named.get("placement")
    if name is None or call.name == "place":
        return {}
    if name in setting.placements:
        return {"placement": bytes.fromhex(setting.placement(name, epoch).placement_id)}
    return {"placement": _field("placement", name)}


def _name_of(placement_id: str, setting: Setting, epoch: int) -> str:
    return setting.name_of(placement_id, epoch) or _print_field("placement", bytes.fromhex(placement_id))


def _text(placement: Placement) -> list[memoryview]:
    """The frames of a message that carries a placement."""
    return placement_frames(placement)


# -- fields


def _converted(fields: Mapping[str, Any], kind: type[Message]) -> Message:
    try:
        return msgspec.convert(_plain(fields), kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise TraceError(f"{kind.__struct_config__.tag}: {error}") from None


def _defaults(kind: type[Message], setting: Setting, sender: str, epoch: int) -> dict[str, Any]:
    role = setting.role
    known = {
        **_SIMPLE, "name": sender, "device": sender, "plan": bytes.fromhex(role.plan_id), "epoch": role.epoch,
        "placement": bytes.fromhex(setting.placement(COMPILED, epoch).placement_id), "first_request": 0,
    }  # fmt: skip
    if kind.__name__ in ("Close", "Token", "Trace", "Crossed"):
        known.pop("token", None)
    if kind is Prepared:
        known["problem"] = None
    if kind is Hello:
        known["shares"] = role.model.step_requests > 1 and known["name"] != CLIENT
    if kind is Want:
        known["end"] = 0
    return {key: known[key] for key in kind.__struct_fields__ if key in known}


def _of_rows(submodule: str, parts: int) -> dict[str, Any]:
    """What `rows` has where it is not written."""
    return {"state": f"{submodule}.state" if parts else "", "sequences": min(1, parts)}


def _field(key: str, item: Any) -> Any:
    if key in _BYTES:
        return str(item).encode().ljust(_BYTES[key], b"\0")
    if key == "problem":
        return read_problem(item)
    return item


def _print_field(key: str, value: Any) -> str:
    if key in _BYTES:
        return bytes(value).rstrip(b"\0").decode() if _is_text(value) else bytes(value).hex()[:12]
    if isinstance(value, Problem):
        return print_problem(value)
    if isinstance(value, Sampling):
        return print_value(difference(value, Sampling()))
    if isinstance(value, Vitals | RingStatus):
        return print_value(_told(value))
    if key == "values":
        return print_value([spec.name for spec in value])
    if key in ("have", "likely"):
        return print_value(msgspec.to_builtins(value))
    if key == "requests":
        return print_value([_unusual(item, _ITEMS[type(item)]) for item in value])
    return print_value(value)


def _in_force(setting: Setting) -> dict[str, Any]:
    """What a ring has of its placement, where nothing is written."""
    return {"epoch": setting.role.epoch, "placement": setting.role.placement_id}


def _told(value: Any) -> Any:
    """Data of structs, without what has its default."""
    if isinstance(value, tuple):
        return [_told(item) for item in value]
    if not isinstance(value, msgspec.Struct) or value.__struct_config__.array_like:
        return msgspec.to_builtins(value)
    return {
        field.name: _told(getattr(value, field.name))
        for field in msgspec.structs.fields(value)
        if field.required or getattr(value, field.name) not in (field.default, {})
    }


def difference(item: msgspec.Struct, default: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from the default, and which request it is for."""
    fields, others = msgspec.structs.asdict(item), msgspec.structs.asdict(default)
    found = {key: value for key, value in fields.items() if key == "request" or value != others[key]}
    return {
        key: difference(value, Sampling()) if isinstance(value, Sampling) else value
        for key, value in found.items()
    }


def _unusual(item: msgspec.Struct, usual: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in msgspec.structs.asdict(item).items() if value != usual.get(key)}
    return {
        key: difference(value, Sampling()) if isinstance(value, Sampling) else value
        for key, value in fields.items()
    }


def _is_text(value: bytes) -> bool:
    return bool(value.rstrip(b"\0")) and value.rstrip(b"\0").isalnum()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bytes) else msgspec.to_builtins(value)


def _dtype(array: Any) -> str:
    return str(array.dtype)


def _zeros(specs: Iterable[TensorSpec]) -> list[memoryview]:
    return [memoryview(np.zeros(spec.shape, DTYPES[spec.dtype]).tobytes()) for spec in specs]
