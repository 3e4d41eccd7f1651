"""`placements/without-<device>.json` on the source: what the ring does after the loss of a device.

Each is a whole placement of the same build, sealed as placement.json is, so that the source can send it to the others.
"""

from __future__ import annotations

from pathlib import Path

from partc.errors import BundleError
from partc.format.names import BUILD_FILE, PLACEMENTS_FOLDER
from partc.format.placement import Placement, parse_placement
from partc.format.reading import RECOMPILE, read_object
from partc.format.role import Role, check_role


def contingency_file(lost: str) -> str:
    """The file for the loss of a device, relative to the source's folder."""
    return f"{PLACEMENTS_FOLDER}/without-{lost}.json"


def load_contingencies(role: Role, folder: Path) -> dict[str, Placement]:
    """Lost device → placement, for each loss that the build survives; empty on all devices but the source.

    Raises:
        BundleError: a file is missing, damaged, of another build, or asks for what the source does not have.
    """
    lost = role.build.survives if role.is_source else ()
    return {name: _load(role, name, folder / contingency_file(name)) for name in lost}


def _load(role: Role, lost: str, path: Path) -> Placement:
    placement = parse_placement(read_object(path), str(path))
    if placement.source != role.source or lost in placement.ring:
        message = f"it is no placement for the loss of {lost}"
        raise BundleError(message, where=str(path), hint=RECOMPILE)
    if placement.plan_id != role.plan_id:
        message = f"it is of another build than {BUILD_FILE}"
        raise BundleError(message, where=str(path), hint=RECOMPILE)
    check_role(Role(role.build, placement), str(path))
    return placement
