"""`python -m partc.conformance`."""

from __future__ import annotations

from partc.conformance.cli import main

raise SystemExit(main())
