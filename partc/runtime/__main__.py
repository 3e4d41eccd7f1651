"""`python -m partc.runtime` is `partc-runner`."""

from __future__ import annotations

import sys

from partc.runtime.cli import main

if __name__ == "__main__":
    sys.exit(main())
