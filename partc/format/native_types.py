"""Types and ranges of fields in C++, for `partc.format.native`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from partc.format.tasks import TASK_PATTERN

_PATTERNS = {
    r"^[0-9a-f]{64}$": "is_sha256",
    r"^[a-z][a-z0-9_]*$(?!\n)": "is_device_name",
    TASK_PATTERN: "is_task",
    r"^[a-z0-9_]+(-[a-z0-9_]+)+$": "is_platform",
    r"^(prefill|decode)$": "is_phase",
    r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)": "is_identifier",
}
"""Pattern → the function in `native/src/format/patterns.hpp` that stands for it."""


def cpp_type(kind: types.Type, homes: Mapping[type[Struct], str]) -> str:
    """The C++ type of a field.

    Args:
        kind: as msgspec describes it.
        homes: structs of other namespaces → their namespace.

    Raises:
        TypeError: there is none so far.
    """
    match kind:
        case types.Metadata(type=inner):
            return cpp_type(inner, homes)
        case types.IntType(ge=least):
            return "std::int64_t" if least is None or least < 0 else "std::uint64_t"
        case types.LiteralType(values=values):
            return "std::uint64_t" if isinstance(values[0], int) else "std::string"
        case types.FloatType():
            return "double"
        case types.BoolType():
            return "bool"
        case types.StrType():
            return "std::string"
        case types.BytesType():
            return "Bytes"
        case types.AnyType():
            return "Value"
        case types.VarTupleType(item_type=item):
            return f"std::vector<{cpp_type(item, homes)}>"
        case types.TupleType(item_types=(first, second)):
            return f"std::pair<{cpp_type(first, homes)}, {cpp_type(second, homes)}>"
        case types.TupleType(item_types=several) if len({cpp_type(one, homes) for one in several}) == 1:
            return f"std::array<{cpp_type(several[0], homes)}, {len(several)}>"
        case types.DictType(value_type=value):
            return f"Map<std::string, {cpp_type(value, homes)}>"
        case types.StructType(cls=struct):
            home = homes.get(struct)
            return struct.__name__ if home is None else f"{home}::{struct.__name__}"
        case types.UnionType(types=several):
            return _union(several, homes)
        case _:
            raise TypeError(f"{kind} has no type in C++")


def _union(several: tuple[types.Type, ...], homes: Mapping[type[Struct], str]) -> str:
    others = [kind for kind in several if not isinstance(kind, types.NoneType)]
    if len(others) == 1:
        return f"std::optional<{cpp_type(others[0], homes)}>"
    names = {type(kind).__name__ for kind in others}
    if names == {"IntType", "StrType"}:
        return "Size"
    if names == {"BoolType", "IntType", "FloatType", "StrType"}:
        return "Fact"
    raise TypeError(f"{several} has no type in C++")


def may_be_absent(field: types.Field) -> bool:
    """Whether a field has no value where it is not given: `UNSET`, which is never written."""
    nothing = msgspec.NODEFAULT
    return not field.required and field.default is nothing and field.default_factory is nothing


def field_type(field: types.Field, homes: Mapping[type[Struct], str]) -> str:
    """The C++ type of a field, with room for its absence where it may have none."""
    kind = cpp_type(field.type, homes)
    return f"std::optional<{kind}>" if may_be_absent(field) else kind


def default_text(field: types.Field) -> str:
    """How a field is initialised: its default, or zero."""
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if field.required or value is None or value == () or value == {}:
        return "{}"
    return f" = {msgspec.json.encode(value).decode()}"


class Constraints:
    """What holds for fields, each as a named constant: ranges, lengths, patterns."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}

    def lines(self) -> list[str]:
        """The definitions, each behind those that it needs."""
        return [f"constexpr Limits {name}{{{text}}};" for name, text in self._named.items()]

    def of(self, kind: types.Type) -> str:
        """The name of what holds for a type; `anything` where nothing does."""
        found = self._parts(kind)
        if not found:
            return "anything"
        name = "_".join(_word(key, value) for key, value in found.items())
        self._named.setdefault(name, ", ".join(f".{key} = {value}" for key, value in found.items()))
        return name

    def _parts(self, kind: types.Type) -> dict[str, str]:
        match kind:
            case types.Metadata(type=inner):
                return self._parts(inner)
            case types.IntType(ge=least) if least is not None and least < 0:
                return {}  # all that the type holds
            case types.IntType(ge=least, le=most, lt=below):
                highest = most if most is not None else None if below is None else below - 1
                return _given(least=least or None, most=highest)
            case types.FloatType(ge=least, le=most):
                return _given(real_least=least, real_most=most)
            case types.LiteralType(values=values) if isinstance(values[0], int):
                return _given(least=values[0], most=values[0])
            case types.LiteralType(values=values):
                return {"one_of": f'"{" ".join(str(value) for value in values)}"'}
            case types.StrType(min_length=shortest, max_length=longest, pattern=pattern):
                test = {} if pattern is None else {"pattern": _PATTERNS[pattern]}
                return {**_given(shortest=shortest, longest=longest), **test}
            case types.BytesType(min_length=shortest, max_length=longest):
                return _given(shortest=shortest, longest=longest)
            case types.VarTupleType(item_type=item, min_length=shortest, max_length=longest):
                return {**_given(shortest=shortest, longest=longest), **self._inner(item=item)}
            case types.TupleType(item_types=several):
                names = [self.of(one) for one in several]
                if len({*names}) == 1:
                    return self._inner(item=several[0])
                return {
                    key: f"&{name}" for key, name in zip(("item", "second", "third"), names, strict=False)
                }
            case types.DictType(key_type=key, value_type=value, max_length=longest):
                return {**_given(longest=longest), **self._inner(key=key, item=value)}
            case types.UnionType(types=several):
                return {key: text for each in several for key, text in self._parts(each).items()}
            case _:
                return {}

    def _inner(self, **kinds: types.Type) -> dict[str, str]:
        names = {key: self.of(kind) for key, kind in kinds.items()}
        return {key: f"&{name}" for key, name in names.items() if name != "anything"}


def _given(**numbers: Any) -> dict[str, str]:
    return {key: _number(key, value) for key, value in numbers.items() if value is not None}


def _number(key: str, value: Any) -> str:
    if not key.startswith("real"):
        return f"{value}u" if value < 2**32 else f"{value}ull"
    return repr(float(value))


def _word(key: str, value: str) -> str:
    """A part of a constant's name."""
    plain = value.strip('&"').removesuffix("ull").removesuffix("u")
    text = "".join(letter if letter.isalnum() else "_" for letter in plain)
    return f"{key}_{text}"
