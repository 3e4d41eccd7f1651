"""The console script `partc-runner`, and `python -m partc.runtime`; interrupts are taken over before any import."""

from __future__ import annotations

import sys

from partc import interrupts


def main() -> int:
    """Run the command line of this process; its exit code."""
    interrupts.arm()
    from partc.quiet import quieten_libraries
    from partc.runtime.cli import main

    quieten_libraries()
    code = main()
    interrupts.finish()
    return code


if __name__ == "__main__":
    sys.exit(main())
