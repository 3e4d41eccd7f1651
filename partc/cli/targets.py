"""Checks of the targets of all devices, before the long work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partc.errors import UserError
from partc.pipeline.registry import load_target

if TYPE_CHECKING:
    from partc.config.devices import DevicesConfig


def check_targets(devices: DevicesConfig, *, tools: bool) -> None:
    """Refuse options that a device's target does not have or that do not fit together; with `tools` missing tools too.

    Raises:
        UserError: `where` names the device and the option.
    """
    for name, device in devices.devices.items():
        try:
            target = load_target(device.target, device.target_options)
            target.check() if tools else target.check_options()
        except UserError as error:
            where = f"device {name}: {error.where}" if error.where else f"device {name}"
            raise type(error)(error.message, where=where, hint=error.hint) from None
