"""The build that a path names, or what was meant by it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from partc.errors import BundleError

if TYPE_CHECKING:
    from partc.format.role import Role

_MANY = 5


def load_build(build: Path) -> Role:
    """The role of the source of the build that somebody names.

    Raises:
        BundleError: it is no build; the hint says what was meant, as far as that can be seen.
    """
    from partc.format.role import source_role

    if build.is_file():
        compiling = f"partc compile {build} --target devices.yaml -o build; then give build"
        raise BundleError(
            "this is a file, not the folder of a build",
            where=str(build),
            hint=compiling if build.suffix in (".yaml", ".yml", ".onnx") else "give what partc compile wrote",
        )
    if (whole := _build_around(build)) is not None:
        what = "one device's folder" if (build / "build.json").is_file() else "a part of a build"
        raise BundleError(f"that is {what}, not the build", where=str(build), hint=f"give {whole}")
    if not (build / "devices").is_dir() and (found := _builds_near(build)):
        raise BundleError(
            "not a build" if build.exists() else "no such folder",
            where=str(build),
            hint=f"give one of the builds found: {', '.join(found)}",
        )
    return source_role(build)


def check_plan_path(path: Path) -> bool:
    """Whether a path is to be read as a plan.json alone; what is neither that nor a build is refused.

    Raises:
        BundleError: it is no build; the hint says what was meant.
    """
    if path.is_file() or path.suffix == ".json":
        return True
    load_build(path)
    return False


def _builds_near(build: Path) -> list[str]:
    """A few builds in the folder or beside it."""
    folders = dict.fromkeys((build, build.parent))  # the parent of `.` is `.`
    plans = (path for folder in folders for path in sorted(folder.glob("*/plan.json")))
    return [str(path.parent) for path in plans][:_MANY]


def _build_around(folder: Path) -> Path | None:
    """The build that a folder lies in: that of a device, of all devices, of the keys."""
    if not folder.is_dir() or (folder / "devices").is_dir():
        return None
    # As it was given, where that says it: `build/devices`; else `.` would have no parent.
    around = [*folder.parents[:2], *folder.absolute().parents[:2]]
    return next(
        (place for place in around if (place / "plan.json").is_file() and (place / "devices").is_dir()), None
    )
