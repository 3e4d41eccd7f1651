"""The files of a record: text, made to be read in a review.

```
storyteller/graph.coarsen-submodules.partc   the graph after a pass (docs/bundle.md has the grammar)
storyteller/weights.yaml                     tensor → type and digest
storyteller/plan.yaml  bundle.yaml  tokens.yaml  cost.yaml
storyteller/made-by.yaml                     what it was made from and by
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from partc.atomic import write_file
from partc.config.yamlfile import load_yaml
from partc.differences.mappings import plain
from partc.errors import ConfigError
from partc.format.plain_files import read_plain_text
from partc.golden.config import PARTS, Case
from partc.golden.origin import Origin
from partc.golden.tokens import Answer, kept

_ORIGIN = "made-by.yaml"
_GRAPH = "graph.{}.partc"
_WIDTH = 10_000
"""An entry is a line, however long: reviews show lines."""
_SHORT = 90


@dataclass(frozen=True)
class Record:
    """What partc made of a case. A part that is not kept is None."""

    origin: Origin = field(default_factory=Origin)
    graph: Mapping[str, str] | None = None
    """Pass → the text of the graph after it."""
    weights: Mapping[str, str] | None = None
    """Tensor of the checkpoint → its type and a digest of its values."""
    plan: Mapping[str, Any] | None = None
    """See `partc.differences.plans`."""
    bundle: Mapping[str, Any] | None = None
    """See `partc.differences.builds`."""
    tokens: Sequence[Answer] | None = None
    cost: Mapping[str, Any] | None = None
    """Figures of the cost of quantisation."""


def write_record(record: Record, folder: Path) -> list[Path]:
    """Write the files of a record, and remove those of parts that are not kept any more; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {_GRAPH.format(name): text for name, text in (record.graph or {}).items()}
    for part in PARTS[1:]:
        content = getattr(record, part)
        if content is not None:
            texts[f"{part}.yaml"] = _dump({part: kept(content) if part == "tokens" else content})
    texts[_ORIGIN] = _dump(record.origin.to_yaml())
    for path in folder.iterdir():
        if path.name not in texts and path.suffix in (".yaml", ".partc"):
            path.unlink()
    for name, text in texts.items():
        write_file(folder / name, text)
    return [folder / name for name in texts]


def is_kept(case: Case) -> bool:
    """Whether there is a record of a case, with all parts that golden.yaml keeps now."""
    files = [f"{part}.yaml" for part in case.keep if part != "graph"]
    files += [_GRAPH.format(name) for name in case.after if "graph" in case.keep]
    return all((case.folder / name).is_file() for name in (_ORIGIN, *files))


def read_record(case: Case) -> Record:
    """The record that is kept of a case.

    Raises:
        ConfigError: there is none, or a file is missing or damaged.
    """
    folder = case.folder
    if not (folder / _ORIGIN).is_file():
        hint = (
            f"partc golden update {folder.parent} --case {case.name}; then look at the files and commit them"
        )
        raise ConfigError(f"nothing is kept of {case.name} yet", where=str(folder), hint=hint)
    parts: dict[str, Any] = {}
    for part in case.keep:
        if part == "graph":
            parts[part] = {name: _text(case, _GRAPH.format(name)) for name in case.after}
        else:
            parts[part] = _load(case, f"{part}.yaml").get(part)
    origin = _load(case, _ORIGIN)
    known = {key: origin.get(key) or {} for key in ("versions", "sources", "settings", "steps")}
    return Record(Origin(**known), **parts)


def _text(case: Case, name: str) -> str:
    again = f"partc golden update {case.folder.parent} --case {case.name}"
    return read_plain_text(case.folder / name, ConfigError, again)


def _load(case: Case, name: str) -> Mapping[str, Any]:
    if not (case.folder / name).is_file():
        hint = f"partc golden update {case.folder.parent} --case {case.name}"
        raise ConfigError(
            "no such file, though golden.yaml keeps it", where=str(case.folder / name), hint=hint
        )
    return load_yaml(case.folder / name).data


class _Dumper(yaml.SafeDumper):
    """What is short and holds no lists or mappings stands on one line; everything else an entry a line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Equal values are written out: a reader does not want to look for the first of them."""
        return True

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        """Lists of scalars on one line, however long."""
        return super().represent_sequence(tag, sequence, flow_style=all(map(_is_scalar, sequence)))

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        """Short mappings of scalars on one line."""
        is_short = len(str(mapping)) <= _SHORT and all(map(_is_scalar, mapping.values()))
        return super().represent_mapping(tag, mapping, flow_style=is_short)


def _is_scalar(value: object) -> bool:
    return not isinstance(value, dict | list)


def _dump(content: Mapping[str, Any]) -> str:
    text: str = yaml.dump(plain(content), Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return text
