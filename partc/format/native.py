"""C++ of the structs and tables that both runners need: `python -m partc.format.native native/src/format`.

The native runner (native/) reads the same bundle and speaks the same wire. Its structs, the ranges of their fields and
the tables of names are written from those of this package, so that the two cannot drift; a test holds the files and the
structs together. How a struct is read and written is one template for all, `native/src/format/structs.hpp`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from partc.format import (
    build,
    fields,
    gpu_code,
    json_text,
    kernel_plan,
    layouts,
    logs,
    messages,
    names,
    placement,
    program,
    readings,
    status,
    tasks,
)
from partc.format import message_parts as parts
from partc.format.document import summary
from partc.format.dtypes import ELEMENT_TYPES
from partc.format.messages import rights
from partc.format.native_types import Constraints, default_text, field_type, may_be_absent

HEADER = "// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.\n"

_MESSAGES = [kind for kind in get_args(messages.AnyMessage) if issubclass(kind, messages.Message)]
_GROUPS: Mapping[str, Sequence[type[Struct]]] = {
    "messages": (
        *(parts.TensorSpec, parts.Row, parts.Likely, parts.Sampling, parts.Reuse, parts.Opening, parts.Reached),
        *(parts.Held, parts.Resumption),
        *(parts.Problem, readings.Readings, status.Work, status.Steps, status.Vitals, status.DeviceStatus),
        *(status.Change, status.RingStatus, *_MESSAGES),
    ),
    "build": (
        *(readings.Limits, build.TensorType, build.Port, build.State, build.Submodule, build.Model),
        *(build.LibraryFunctions, build.LibraryOptions, build.EngineSpec, build.Memory, build.Shared, build.Overlap),
        *(build.FileEntry, build.Build),
    ),
    "placement": (placement.Stage, placement.Placement),
    "kernel_plan": (
        *(kernel_plan.KernelTensor, kernel_plan.KernelParameter, kernel_plan.Kernel, kernel_plan.KernelConstant),
        *(kernel_plan.KernelLaunch, kernel_plan.Place, kernel_plan.KernelCall, kernel_plan.KernelOutput),
        *(kernel_plan.KernelFunction, kernel_plan.KernelPlan),
    ),
}  # fmt: skip
"""C++ namespace, and name of its files → structs, each behind those that it holds."""

_COUNTS = ((parts.Sampling, "top_k"), (parts.Sampling, "seed"))
"""Whole numbers that `__post_init__` holds to be no less than 0."""

_FACTS: Mapping[str, int | str] = {
    "VERSION": messages.VERSION,
    "CLIENT": messages.CLIENT,
    "FRAME_LIMIT": fields.FRAME_LIMIT,
    "LONGEST_CAUSE": fields.LONGEST_CAUSE,
    "SAMPLE": status.SAMPLE,
    "WINDOW_STEPS": status.WINDOW_STEPS,
    "KEPT_CHANGES": status.KEPT_CHANGES,
    "BUILD_FORMAT": build.BUILD_FORMAT,
    "BUILD_FILE": names.BUILD_FILE,
    "PLACEMENT_FORMAT": placement.PLACEMENT_FORMAT,
    "PLACEMENT_FILE": names.PLACEMENT_FILE,
    "KERNELS_FORMAT": kernel_plan.KERNELS_FORMAT,
    "KERNELS_FILE": kernel_plan.KERNELS_FILE,
    "GPU_DIGEST_NAME": gpu_code.DIGEST_NAME,
    "ALIGNMENT": layouts.ALIGNMENT,
    "PANEL": layouts.PANEL,
    "MOST_LEVELS": json_text.MOST_LEVELS,
    "INPUT_IDS": tasks.INPUT_IDS,
    "SOURCE_IDS": tasks.SOURCE_IDS,
    "SOURCE_LENGTH": tasks.SOURCE_LENGTH,
    "SOURCE": tasks.SOURCE,
    "STRANGERS_EVERY_S": logs.STRANGERS_EVERY_S,
    "ONCE": program.ONCE,
}
"""Numbers and names that are no fields."""

_LISTS = {"TASKS": tasks.TASKS, "GENERATING": tasks.GENERATING}
"""Lists of names that are no fields."""


def files() -> dict[str, str]:
    """Name → text of every file."""
    found = {"facts.gen.hpp": _facts(), "logs.gen.hpp": _logs(), "rights.gen.hpp": _rights()}
    for namespace, structs in _GROUPS.items():
        found[f"{namespace}.gen.hpp"] = _declarations(namespace, structs)
        found[f"{namespace}.gen.cpp"] = _definitions(namespace, structs)
    return found


_TABLES_HEAD = (
    HEADER,
    "#pragma once",
    "",
    "#include <array>",
    "#include <cstdint>",
    "#include <string_view>",
    "",
)
"""The head of a file of tables."""


def _facts() -> str:
    lines = [*_TABLES_HEAD, "namespace partc {", ""]
    for name, value in _FACTS.items():
        kind = "std::string_view" if isinstance(value, str) else "std::uint64_t"
        lines.append(f"inline constexpr {kind} {name} = {_literal(value)};")
    for name, listed in _LISTS.items():
        lines += ["", f"inline constexpr std::array<std::string_view, {len(listed)}> {name}{{{{"]
        lines += [f"    {_literal(one)}," for one in listed]
        lines.append("}};")
    lines += ["", "/// One row of the table of element types.", "struct ElementType {"]
    lines += ["  std::string_view name, held, safetensors;", "  std::uint64_t bytes;"]
    lines += ["  int onnx;  // the number of onnx.TensorProto.DataType", "};", ""]
    lines.append(f"inline constexpr std::array<ElementType, {len(ELEMENT_TYPES)}> ELEMENT_TYPES{{{{")
    for row in ELEMENT_TYPES:
        lines.append(
            f'    {{"{row.long}", "{row.held.name}", "{row.safetensors}", {row.bytes}, {row.onnx}}},'
        )
    lines += ["}};", "", "}  // namespace partc", ""]
    return "\n".join(lines)


def _logs() -> str:
    """The table of events of a log."""
    lines = [*_TABLES_HEAD, "namespace partc {", "", "/// One event of a log.", "struct LogEvent {"]
    lines += ["  std::string_view name;", "  std::uint64_t level;  // index in LOG_LEVELS"]
    lines += ["  std::string_view sentence;  // `{field}` stands for the value of a field", "};", ""]
    for name, words in (("LOG_LEVELS", (*logs.LEVELS, logs.NO_LEVEL)), ("LOG_FORMATS", logs.FORMATS)):
        texts = ", ".join(map(_literal, words))
        lines += [f"inline constexpr std::array<std::string_view, {len(words)}> {name}{{{{{texts}}}}};"]
    told = [event for event in logs.EVENTS if event.where != ("server",)]
    lines += ["", f"inline constexpr std::array<LogEvent, {len(told)}> LOG_EVENTS{{{{"]
    for event in told:
        lines += [f"    {{{_literal(event.name)}, {logs.LEVELS.index(event.level)},"]
        lines += [f"     {_literal(event.sentence)}}},"]
    lines += ["}};", "", "}  // namespace partc", ""]
    return "\n".join(lines)


def _rights() -> str:
    """The table of the rights to send messages."""
    rows = [
        f'    {{"{_tag(kind)}", Party::{right.sender.name}, Party::{right.receiver.name}, When::{right.when.name}}},'
        for kind, found in rights.RIGHTS.items()
        for right in found
    ]
    lines = [HEADER, "#pragma once", "", "#include <array>", "#include <string_view>", ""]
    lines += ["namespace partc::messages {", ""]
    lines += [f"enum class Party {{ {', '.join(party.name for party in rights.Party)} }};"]
    lines += [f"enum class When {{ {', '.join(when.name for when in rights.When)} }};"]
    lines += ["/// Who may send a kind of message to whom.", "struct Right {"]
    lines += ["  std::string_view kind;", "  Party sender, receiver;", "  When when;", "};", ""]
    lines += [f"inline constexpr std::array<Right, {len(rows)}> RIGHTS{{{{", *rows, "}};", ""]
    return "\n".join([*lines, "}  // namespace partc::messages", ""])


def _declarations(namespace: str, structs: Sequence[type[Struct]]) -> str:
    lines = [HEADER, "#pragma once", "", '#include "format/plain.hpp"']
    lines += [f'#include "format/{other}.gen.hpp"' for other in _needed(namespace, structs)]
    lines += ["", f"namespace partc::{namespace} {{", ""]
    for struct in structs:
        lines += [*_declaration(namespace, struct), ""]
    if namespace == "messages":
        names = ", ".join(kind.__name__ for kind in _MESSAGES)
        lines += [f"using AnyMessage = std::variant<{names}>;", ""]
        lines += ["/// Throws Error: it is no message.", "AnyMessage read_message(const Value& value);"]
        lines += ["std::string write_message(const AnyMessage& message);"]
        lines += ["std::string_view kind_of(const AnyMessage& message);"]
    else:
        whole = structs[-1].__name__
        lines += [
            f"/// Throws Error: the data are no {whole}.",
            f"{whole} read_{namespace}(const Value& value);",
        ]
        lines.append(f"Value write_{namespace}(const {whole}& item);")
    return "\n".join([*lines, "", f"}}  // namespace partc::{namespace}", ""])


def _needed(namespace: str, structs: Sequence[type[Struct]]) -> list[str]:
    """The other groups whose structs these hold."""
    homes = {struct: name for name, group in _GROUPS.items() for struct in group}
    held = {homes[kind] for struct in structs for kind in _held(_info(struct))}
    return sorted(held - {namespace})


def _held(kind: types.Type) -> Iterator[type[Struct]]:
    match kind:
        case types.StructType(cls=struct, fields=inner):
            yield struct
            for field in inner:
                yield from _held(field.type)
        case types.Metadata(type=inner_type):
            yield from _held(inner_type)
        case types.VarTupleType(item_type=item):
            yield from _held(item)
        case types.TupleType(item_types=several) | types.UnionType(types=several):
            for each in several:
                yield from _held(each)
        case types.DictType(key_type=_, value_type=value):
            yield from _held(value)
        case _:
            return


def _info(struct: type[Struct]) -> types.StructType:
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return info


def _declaration(namespace: str, struct: type[Struct]) -> list[str]:
    """The struct itself, with its defaults."""
    homes = {each: name for name, group in _GROUPS.items() for each in group if name != namespace}
    lines = [f"/// {summary(struct)}", f"struct {struct.__name__} {{"]
    if issubclass(struct, messages.Message):
        lines.append(f'  static constexpr std::string_view kind = "{_tag(struct)}";')
    for field in _info(struct).fields:
        kind = "std::uint64_t" if (struct, field.name) in _COUNTS else field_type(field, homes)
        lines.append(f"  {kind} {_name(field)}{default_text(field)};")
    lines.append(f"  bool operator==(const {struct.__name__}&) const = default;")
    return [*lines, "};"]


def _definitions(namespace: str, structs: Sequence[type[Struct]]) -> str:
    constraints = Constraints()
    bodies = [line for struct in structs for line in (*_visitor(struct, constraints), "")]
    lines = [HEADER, f'#include "format/{namespace}.gen.hpp"', "", '#include "format/structs.hpp"', ""]
    if namespace == "messages":
        lines[3] = '#include "format/message_parts.hpp"\n#include "format/structs.hpp"'
    lines += ["namespace partc {", "namespace {", "", *constraints.lines(), "", "}  // namespace", ""]
    lines += [f"namespace {namespace} {{", "", *bodies]
    if namespace == "messages":
        lines += _message_functions()
    else:
        whole = structs[-1].__name__
        lines += [
            f"{whole} read_{namespace}(const Value& value) {{ return read_struct<{whole}>(value, Source::json); }}"
        ]
        lines += [f"Value write_{namespace}(const {whole}& item) {{ return to_value(item); }}"]
    return "\n".join([*lines, "", f"}}  // namespace {namespace}", "}  // namespace partc", ""])


def _visitor(struct: type[Struct], constraints: Constraints) -> Iterable[str]:
    """The function that shows every field of a struct, with what holds for it, to a reader or writer."""
    info = _info(struct)
    yield "template <class Visitor>"
    is_used = "item" if info.fields else ""
    yield f"void fields(Visitor& visit, Is<{struct.__name__}> auto& {is_used}) {{"
    shape = "array" if info.array_like else "map"
    count = [f"item.{_name(field)}.has_value()" for field in info.fields if may_be_absent(field)]
    there = " + ".join([str(len(info.fields) - len(count)), *count])
    yield f"  visit.begin(Form::{shape}, {there}, {_literal(_tag(struct))});"
    for field in info.fields:
        need = "required" if field.required else "absent" if may_be_absent(field) else "optional"
        limits = constraints.of(field.type)
        yield f'  visit("{field.encode_name}", item.{_name(field)}, Need::{need}, {limits});'
    yield "}"


def _message_functions() -> list[str]:
    lines = ["AnyMessage read_message(const Value& value) {", "  const std::string& kind = kind_in(value);"]
    for kind in _MESSAGES:
        name = kind.__name__
        lines.append(f"  if (kind == {name}::kind) return read_struct<{name}>(value, Source::msgpack);")
    lines += ['  throw refused("no kind of message is " + in_quotes(kind, 40));', "}", ""]
    lines += ["std::string write_message(const AnyMessage& message) {"]
    lines += ["  return std::visit([](const auto& item) { return to_msgpack(item); }, message);", "}", ""]
    lines += ["std::string_view kind_of(const AnyMessage& message) {"]
    lines += ["  return std::visit([](const auto& item) { return item.kind; }, message);", "}"]
    return lines


def _name(field: types.Field) -> str:
    """The name in C++, where a Python name may be a word of the language."""
    return f"{field.name}_" if field.name in ("operator", "default") else field.name


def _tag(struct: type[Struct]) -> str:
    return str(struct.__struct_config__.tag or "")


def _literal(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def main(folder: str) -> None:
    """Rewrite the files that differ."""
    for name, text in files().items():
        path = Path(folder) / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1])
