"""Code for GPUs on a GPU: `python -m tests.gpu` (docs/gpu.md)."""
