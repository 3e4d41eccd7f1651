"""Tables of the documents and JSON schemas, written from the structs: `python -m partc.format.document docs`.

A document marks where a table stands by a pair of comments, `<!-- NAME: begin -->` and `<!-- NAME: end -->`; `TABLES`
has the names. A test holds the documents and the structs together.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import get_args

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from partc.format import build, kernel_plan, logs, messages, placement, readings, status
from partc.format import message_parts as parts
from partc.format.digests import canonical_json
from partc.format.messages import rights
from partc.format.program import INSTRUCTIONS, Instruction


def build_tables() -> str:
    """The keys of build.json, then those of its parts."""
    return _tables(
        build.Build,
        *(build.Model, build.Port, build.TensorType, build.Submodule, build.State, build.EngineSpec),
        *(
            build.LibraryOptions,
            build.LibraryFunctions,
            build.Memory,
            build.Overlap,
            build.Shared,
            readings.Limits,
        ),
        build.FileEntry,
    )


def kernel_tables() -> str:
    """The keys of kernels.json, then those of its parts."""
    return _tables(
        kernel_plan.KernelPlan,
        *(kernel_plan.Kernel, kernel_plan.KernelParameter, kernel_plan.KernelConstant),
        *(kernel_plan.KernelFunction, kernel_plan.KernelTensor, kernel_plan.KernelCall),
        *(kernel_plan.Place, kernel_plan.KernelOutput, kernel_plan.KernelLaunch),
    )


def placement_tables() -> str:
    """The keys of placement.json, then those of its parts."""
    return _tables(placement.Placement, placement.Stage)


def message_tables() -> str:
    """All kinds of messages, then the fields of each, then the structs that they hold."""
    kinds = [kind for kind in get_args(messages.AnyMessage) if issubclass(kind, messages.Message)]
    lines = ["| kind | from → to | when | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{_tag(kind)}` | {rights.route_text(kind)} | {rights.when_text(kind)} | {summary(kind)} |"
        for kind in kinds
    ]
    for kind in kinds:
        if kind.__struct_fields__:
            lines += ["", f"**`{_tag(kind)}`**: {summary(kind)}", "", *field_table(kind)]
    held = (parts.Row, parts.TensorSpec, parts.Opening, parts.Sampling, parts.Reuse, parts.Likely)
    changed = (parts.Reached, parts.Held, parts.Resumption, parts.Problem)
    watched = (status.Vitals, readings.Readings, status.Work)
    rings = (status.RingStatus, status.DeviceStatus, status.Steps, status.Change)
    for part in (*held, *changed, *watched, *rings):
        lines += ["", f"**{part.__name__}**: {summary(part)}", "", *field_table(part)]
    return "\n".join(lines)


def log_tables() -> str:
    """The events of a log, then their fields."""
    lines = ["| event | level | told by | fields | sentence |", "|---|---|---|---|---|"]
    for event in logs.EVENTS:
        by = "any device" if set(event.where) >= {"device", "source"} else ", ".join(event.where)
        by += ", server" if by == "any device" and "server" in event.where else ""
        fields = ", ".join(f"`{name}`" for name in event.fields)
        lines.append(f"| `{event.name}` | {event.level} | {by} | {fields} | {event.sentence} |")
    lines += ["", "| field | holds |", "|---|---|"]
    lines += [f"| `{name}` | {about} |" for name, about in logs.FIELDS.items()]
    return "\n".join(lines)


def _tag(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _tables(whole: type[Struct], *parts: type[Struct]) -> str:
    lines = field_table(whole)
    for part in parts:
        lines += ["", f"**{part.__name__}**: {summary(part)}", "", *field_table(part)]
    return "\n".join(lines)


def instruction_table() -> str:
    """All instructions, as they are written, and their meaning."""
    rows = [f"| `{_written(kind)}` | {summary(kind)} |" for kind in INSTRUCTIONS.values()]
    return "\n".join(["| instruction | meaning |", "|---|---|", *rows])


def _written(kind: type[Instruction]) -> str:
    """`recv VALUES from DEVICE`."""
    shown = {"tuple": "({})", "names": "{}, …"}
    return "".join(
        text + (shown.get(spec or "", "{}").format(field.upper()) if field else "")
        for text, field, spec, _ in Formatter().parse(kind.grammar)
    )


def schema_text(struct: type[Struct]) -> str:
    """The JSON schema (2020-12) of a struct, with the docstrings of its fields as descriptions."""
    schema = msgspec.json.schema(struct)
    structs = {kind.__name__: kind for kind in _structs(struct)}
    for name, described in schema["$defs"].items():
        fields = structs[name].__struct_fields__
        items = described.get("properties") or dict(zip(fields, described["prefixItems"], strict=True))
        for field, description in _descriptions(structs[name]).items():
            items[field]["description"] = description
    return canonical_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def _structs(struct: type[Struct]) -> set[type[Struct]]:
    """The struct and all that stand in it."""
    module = sys.modules[struct.__module__]
    near = {**vars(build), **vars(module)}.values()
    return {kind for kind in near if isinstance(kind, type) and issubclass(kind, Struct)}


def field_table(struct: type[Struct]) -> list[str]:
    """The fields of a struct: name, type, default, meaning."""
    described = _descriptions(struct)
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    rows = []
    for field in info.fields:
        default = "" if field.required else _default(field)
        meaning = described.get(field.name) or _meaning(field.type)
        rows.append(f"| `{field.encode_name}` | {type_text(field.type)}{default} | {meaning} |")
    return ["| field | type | meaning |", "|---|---|---|", *rows]


def _meaning(kind: types.Type) -> str:
    """The meaning that a type brings to every field of it."""
    extra = kind.extra_json_schema if isinstance(kind, types.Metadata) else None
    return str((extra or {}).get("description", ""))


def type_text(kind: types.Type) -> str:
    """A type as a reader of another language would write it."""
    match kind:
        case types.IntType():
            return "int"
        case types.FloatType():
            return "float"
        case types.BoolType():
            return "bool"
        case types.StrType():
            return "text"
        case types.BytesType(min_length=size):
            return "bytes" if size is None else f"{size} bytes"
        case types.NoneType():
            return "null"
        case types.AnyType():
            return "any"
        case types.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case types.VarTupleType(item_type=item) | types.ListType(item_type=item):
            return f"list of {type_text(item)}"
        case types.TupleType(item_types=items):
            return f"[{', '.join(map(type_text, items))}]"
        case types.DictType(key_type=key, value_type=value):
            return f"map {type_text(key)} → {type_text(value)}"
        case types.UnionType(types=parts):
            return " or ".join(map(type_text, parts))
        case types.StructType(cls=struct):
            return struct.__name__
        case types.Metadata(type=inner):
            return type_text(inner)
        case _:
            raise TypeError(f"{kind} has no text")


TABLES: Mapping[str, Callable[[], str]] = {
    "messages": message_tables,
    "logs": log_tables,
    "build": build_tables,
    "placement": placement_tables,
    "kernels": kernel_tables,
    "instructions": instruction_table,
}
"""Name in the comments → the table."""
SCHEMAS: Mapping[str, type[Struct]] = {
    "build.schema.json": build.Build,
    "placement.schema.json": placement.Placement,
    "kernels.schema.json": kernel_plan.KernelPlan,
}
"""File in docs/ → the struct that it describes."""


def documented(text: str) -> str:
    """A document with all of its tables as they should be."""
    return replace_tables(text, TABLES)


def replace_tables(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A text with each table, by its name in the comments, as it is written now."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        content = f"{begin}\n{table()}\n{end}"
        text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, c=content: c, text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def summary(kind: type) -> str:
    """The first paragraph of a docstring, on one line."""
    first = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split())


def _default(field: types.Field) -> str:
    """What stands where the field is left out."""
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        value = field.default
    else:  # msgspec's UNSET
        return ", may be left out"
    return f" = `{msgspec.json.encode(value).decode()}`"


@cache
def _descriptions(struct: type[Struct]) -> dict[str, str]:
    """Field → the docstring below it."""
    (body,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(body, ast.ClassDef)
    return dict(_documented_fields(body))


def _documented_fields(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, following in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        match following:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield field.target.id, " ".join(text.split())
            case _:
                continue


def main(folder: str) -> None:
    """Rewrite the tables of all documents in a folder, and the schemas."""
    for path in sorted(Path(folder).glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := documented(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path}")
    for name, struct in SCHEMAS.items():
        (Path(folder) / name).write_text(schema_text(struct), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
