"""YAML with line numbers, and without the parts of YAML that surprise people.

Only mappings, lists and scalars: duplicate keys, aliases, tags and keys that are not text are refused. Numbers are
those of YAML 1.1 and those of JSON, so that what is copied out of a config.json means the same here: YAML 1.1 alone
takes `1e-05` for a text, since there is no point in it.
"""

from __future__ import annotations

import re
from pathlib import Path as FilePath

import yaml

from partc.config.section import Path, Section, shorten
from partc.errors import ConfigError
from partc.format.json_text import MOST_LEVELS
from partc.format.plain_files import decode, read_plain_file

_MOST_BYTES = 4 << 20


class _Loader(yaml.SafeLoader):
    """The loader of PyYAML, which takes JSON's numbers as well."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?[eE][-+]?[0-9]+$|^-?Infinity$|^NaN$"),
    list("-0123456789IN"),
)


_OLD_NUMBER = re.compile(r"[-+]?(0[0-7_]+)|[-+]?[0-9_]+(?::[0-9_.]+)+")
"""Numbers of YAML 1.1 that look like others: `0256` is 174, and `1:30` is 90."""


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    """A number; Python's JSON writes `Infinity` where YAML has `.inf`."""
    is_json = node.value.lstrip("-") in ("Infinity", "NaN")
    return float(node.value) if is_json else loader.construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def load_yaml(path: FilePath) -> Section:
    """The top mapping of a YAML file.

    Raises:
        ConfigError: no such file, not UTF-8, broken YAML (with line and column), or not a mapping.
    """
    hint = "check the path; it is relative to the folder that you are in"
    content = read_plain_file(path, ConfigError, hint, most_bytes=_MOST_BYTES)
    text = decode(content, str(path), ConfigError, "save it as UTF-8; editors offer this as an encoding")
    return parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Section:
    """The top mapping of YAML text; `file` is its name in messages."""
    lines: dict[Path, int] = {}
    try:
        node = _compose(text, file)
        data = _plain(node, (), lines, file) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise ConfigError(
            f"not valid YAML: {error.problem}",
            where=place,
            hint="check the indentation, the quotes and the colons",
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"not valid YAML: {str(error).splitlines()[0]}",
            where=file,
            hint="save the file as plain UTF-8 text",
        ) from error
    if data is None:
        hint = "docs/model-yaml.md, docs/devices-yaml.md and docs/fleet.md show the keys of such files"
        raise ConfigError("the file is empty", where=file, hint=hint)
    return Section(data, file, (), lines)


def _compose(text: str, file: str) -> yaml.Node | None:
    """The tree of nodes, once the stream is known to have no aliases (which could be endless) and few levels."""
    level = 0
    for event in yaml.parse(text, Loader=_Loader):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            place = f"{file}:{event.start_mark.line + 1}" if event.start_mark else file
            raise ConfigError("nested too deeply", where=place, hint="is it a configuration file?")
        if isinstance(event, yaml.AliasEvent):
            place = f"{file}:{event.start_mark.line + 1}" if event.start_mark else file
            raise ConfigError("aliases are not supported", where=place, hint="write the value out")
    return yaml.compose(text, Loader=_Loader)


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int], file: str) -> object:
    """Plain Python data; notes the line of every path."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines, file)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, index), lines, file) for index, item in enumerate(node.value)]
    return _scalar(node, file)


def _mapping(node: yaml.MappingNode, path: Path, lines: dict[Path, int], file: str) -> dict[str, object]:
    result: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = _scalar(key_node, file) if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            raise ConfigError(
                f"the key `{key_node.value}` is not a text", where=f"{file}:{line}", hint="write it in quotes"
            )
        if key in result:
            first = lines[(*path, key)]
            raise ConfigError(
                f"the key `{key}` is given twice",
                where=f"{file}:{line}",
                hint=f"remove one; the first is in line {first}",
            )
        lines[(*path, key)] = line
        result[key] = _plain(value_node, (*path, key), lines, file)
    return result


def _scalar(node: yaml.Node, file: str) -> object:
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.endswith(("binary", "timestamp", "merge")):
        raise ConfigError(
            f"the tag {node.tag} is not supported",
            where=f"{file}:{node.start_mark.line + 1}",
            hint="write a plain value, in quotes if it is a text",
        )
    if node.tag.endswith((":int", ":float")) and (base := _OLD_NUMBER.fullmatch(str(node.value))):
        raise ConfigError(
            f"YAML reads `{shorten(node.value)}` as a number to the base {60 if base[1] is None else 8}",
            where=f"{file}:{node.start_mark.line + 1}",
            hint="write it in digits without a leading 0 or colons, or in quotes if it is a text",
        )
    loader = _Loader("")
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:
        raise ConfigError(
            f"cannot read `{shorten(node.value)}`: {str(error).partition(';')[0]}",
            where=f"{file}:{node.start_mark.line + 1}",
            hint="write another value, in quotes if it is a text",
        ) from error
    finally:
        loader.dispose()
