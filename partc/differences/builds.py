"""Two builds: the files of every device, and the model. They are compared as a table of sizes and digests.

```yaml
model: {name: storyteller, task: text-generation, dtype: float32}
devices:
  phone: {target: tvm, files: {build.json: 9032 B 5f2c…, weights/part_0.safetensors: 2565248 B 77d1…}}
```
Keys are no part of it: they are secret, and another build of the same files has others. Nor is the native runner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from partc.differences.change import Change, changed_values
from partc.format.digests import file_digest
from partc.format.names import RUNNER_FILE
from partc.format.role import read_roles

Record = Mapping[str, Any]
_KEYS = "keys"
_DIGITS = 16


def build_record(folder: Path) -> dict[str, Any]:
    """The table of a build.

    Raises:
        BundleError: it is no build, or its folders are not those of one.
    """
    roles = read_roles(folder)
    model = next(iter(roles.values())).model
    return {
        "model": {"name": model.name, "task": model.task, "dtype": model.dtype},
        "devices": {
            name: {"target": role.target, "files": dict(_files(folder / "devices" / name))}
            for name, role in sorted(roles.items())
        },
    }


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != RUNNER_FILE and not name.startswith(f"{_KEYS}/"):
            yield name, f"{path.stat().st_size} B {file_digest(path)[:_DIGITS]}"


def compare_builds(before: Record, after: Record) -> list[Change]:
    """What changed between two builds."""
    found = changed_values("bundle", "model fact", before["model"], after["model"])
    ours, others = before["devices"], after["devices"]
    for name in dict.fromkeys([*ours, *others]):
        one, other = ours.get(name), others.get(name)
        if one is None or other is None:
            kind = "device added" if one is None else "device removed"
            found.append(Change("bundle", kind, name, one and one["target"], other and other["target"]))
            continue
        found += changed_values("bundle", "target changed", {name: one["target"]}, {name: other["target"]})
        found += changed_values("bundle", "file changed", one["files"], other["files"], f"{name}/{{}}")
    return found
