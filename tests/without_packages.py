"""partc as if only one of its extras were installed: `PARTC_TEST_EXTRA=client python -m tests.without_packages run …`.

Packages of the other extras cannot be imported. An empty name stands for an install without any extra.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder

from partc.extras import modules_of, requirements

VARIABLE = "PARTC_TEST_EXTRA"


class Missing(MetaPathFinder):
    """Refuses modules, before any other finder is asked."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def hide(extra: str) -> frozenset[str]:
    """Refuse what `extra` does not bring; the names of the modules."""
    everything = frozenset().union(*(modules_of(name) for name in requirements() if name != "dev"))
    hidden = everything - (modules_of(extra) if extra else frozenset())
    sys.meta_path.insert(0, Missing(hidden))
    return hidden


if __name__ == "__main__":
    hide(os.environ[VARIABLE])
    from partc.cli.__main__ import main

    main()
