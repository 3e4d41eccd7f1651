"""Code for GPUs beside a kernel plan: names of files, and the digest that ties the code to its plan.

Machine code of NVIDIA's GPUs has the digest of the plan's kernels in the constant `partc_kernels`, OpenCL's source in
its first line.
"""

from __future__ import annotations

from typing import Final

CUBIN_FILE: Final = "kernels.cubin"
OPENCL_FILE: Final = "kernels.cl"
DIGEST_NAME: Final = "partc_kernels"
"""The constant of machine code, 32 bytes."""


def digest_line(digest: bytes) -> str:
    """The first line of source for kernels with this digest."""
    return f"// {DIGEST_NAME} {digest.hex()}"
