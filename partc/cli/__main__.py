"""The console script `partc`, and `python -m partc.cli`: interrupts are taken over before anything else is imported."""

from __future__ import annotations

from partc import interrupts


def main() -> None:
    """Run the command line of this process."""
    interrupts.arm()
    from partc.cli.main import main

    main()


if __name__ == "__main__":
    main()
