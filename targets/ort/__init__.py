"""onnxruntime: ONNX graphs with weights in safetensors files."""

from __future__ import annotations

from targets.ort.target import OrtTarget

__all__ = ["OrtTarget"]
