"""The files of a release."""

from __future__ import annotations

from partc import __version__

VERSIONED = f"partc-{__version__}"
NATIVE = f"{VERSIONED}-py3-none-manylinux_2_28_aarch64.manylinux_2_28_x86_64.whl"
PLAIN = f"{VERSIONED}-py3-none-any.whl"
SOURCE, BILL = f"{VERSIONED}.tar.gz", f"{VERSIONED}.cdx.json"
