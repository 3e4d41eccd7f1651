"""The console script `partc`, and `python -m partc.cli`: interrupts are taken over before anything else is imported."""

from __future__ import annotations

import sys

from partc import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> None:
    """Run the command line of this process."""
    interrupts.arm()
    try:
        from partc.cli.main import main
    except ModuleNotFoundError as error:
        _refuse(error)

    main()


def _refuse(error: ModuleNotFoundError) -> NoReturn:
    """End in a line where only the runner is installed, which needs none of the packages of an extra."""
    from partc.extras import COMPILE, OF_COMMAND, extra_of, install_command

    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if extra_of(error.name or "", command) is None:
        raise error
    extra = OF_COMMAND.get(command, COMPILE)
    others = "" if command else "; or one of the extras client, serve, fleet for a part of its commands"
    name = f"partc {command}".strip()
    sys.exit(f"error: this install has partc-runner alone; for {name}: {install_command(extra)}{others}")


if __name__ == "__main__":
    main()
