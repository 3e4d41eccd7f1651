"""The two wheels and the source archive, by hatchling.

| file | for | runners |
| --- | --- | --- |
| `partc-V-py3-none-manylinux_2_28_aarch64.manylinux_2_28_x86_64.whl` | Linux with glibc, both processors | inside |
| `partc-V-py3-none-any.whl` | all other systems | none |
| `partc-V.tar.gz` | packagers: the files of the commit | none |

Of a folder with both wheels pip takes the first one where its tags fit, since they say more, and the second elsewhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from native.zig.compiling import PLATFORMS, RUNNERS
from partc.format.names import RUNNER_FILE
from release.errors import ReleaseError
from release.linked import Library, license_expression
from release.tree import copy_file, write_files

_LICENSES = "linked"
"""The folder of licences of libraries, below that of all licences."""
_GLIBC_OF_A_SYMBOL = re.compile(rb"\0GLIBC_2\.(\d+)(?:\.\d+)?(?=\0)")


class _Wheel(WheelBuilder):
    """A builder of wheels that knows what pyproject.toml cannot say: the tag, and files made for this release."""

    more: Mapping[str, Any] = {}

    def get_default_build_data(self) -> dict[str, Any]:
        return {**super().get_default_build_data(), **self.more}


def source_archive(tree: Path, out: Path) -> Path:
    """The files of the commit, as pyproject.toml chooses them."""
    return _built(SdistBuilder(str(tree), config=_project(tree)), out)


def plain_wheel(tree: Path, out: Path, shared: Sequence[tuple[str, str]]) -> Path:
    """The wheel for every system.

    Args:
        tree: the files of the commit; gets `shared`.
        out: the folder of archives.
        shared: path below the environment, and text.
    """
    return _wheel(tree, out, shared, _project(tree), {})


def native_wheel(
    tree: Path,
    out: Path,
    shared: Sequence[tuple[str, str]],
    runners: Mapping[str, Path],
    linked: Sequence[Library],
    bill: str,
) -> Path:
    """The wheel with native runners, their licences, and the bill of materials.

    Args:
        tree: the files of the commit; gets `shared`, runners, and licences.
        out: the folder of archives.
        shared: path below the environment, and text.
        runners: platform → runner.
        linked: what they contain.
        bill: the bill of materials, as JSON.

    Raises:
        ReleaseError: a runner needs a newer glibc than its platform promises.
    """
    for name, runner in runners.items():
        _check_glibc(name, runner.read_bytes())
        copy_file(runner, tree / RUNNERS / name / RUNNER_FILE, executable=True)
    bill_file = "partc.cdx.json"
    write_files(tree, [(bill_file, bill), *((f"{_LICENSES}/{one.license_file}", one.text) for one in linked)])
    project = _project(tree)
    own: list[str] = project["project"]["license-files"]
    project["project"]["license-files"] = [*own, f"{_LICENSES}/*"]
    project["project"]["license"] = license_expression(linked)
    more = {"tag": f"py3-none-{platform_tag(runners)}", "pure_python": False, "sbom_files": [bill_file]}
    return _wheel(tree, out, shared, project, more)


def platform_tag(platforms: Mapping[str, Path]) -> str:
    """The tag of systems whose runners are inside; that of Android is for phones, which get it from a computer."""
    tags = []
    for name in platforms:
        _, _, glibc = PLATFORMS[name].triple.partition("-gnu.")
        if glibc:
            tags.append(f"manylinux_{glibc.replace('.', '_')}_{PLATFORMS[name].arch}")
    if not tags:
        raise ReleaseError("a wheel with runners needs one for Linux with glibc")
    return ".".join(sorted(tags))


def _check_glibc(name: str, runner: bytes) -> None:
    """Hold the symbols of a runner against the tag."""
    promised = PLATFORMS[name].triple.partition("-gnu.")[2]
    newest = max((int(number) for number in _GLIBC_OF_A_SYMBOL.findall(runner)), default=0)
    if newest > int(promised.removeprefix("2.") or 0):
        raise ReleaseError(
            f"the runner for {name} needs glibc 2.{newest}; its platform promises {promised or 'none'}"
        )


def _wheel(
    tree: Path,
    out: Path,
    shared: Sequence[tuple[str, str]],
    project: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Path:
    write_files(tree, shared)
    builder = _Wheel(str(tree), config=dict(project))
    builder.more = {**more, "shared_data": {str(tree / path): path for path, _ in shared}}
    return _built(builder, out)


def _built(builder: Any, out: Path) -> Path:
    (made,) = builder.build(directory=str(out), versions=["standard"])
    return Path(made)


def _project(tree: Path) -> dict[str, Any]:
    return tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
