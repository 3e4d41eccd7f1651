"""The files of a release."""

from __future__ import annotations

NATIVE = "partc-0.1.0-py3-none-manylinux_2_28_aarch64.manylinux_2_28_x86_64.whl"
PLAIN = "partc-0.1.0-py3-none-any.whl"
SOURCE, BILL = "partc-0.1.0.tar.gz", "partc-0.1.0.cdx.json"
