"""The front end: Hugging Face checkpoints and ONNX files become IR without a weight being loaded.

`load.py` is the way in for transformers: `source.py` finds the model, `trace` makes an ONNX graph of it,
`checkpoint.py` and `symbolic.py` find out where its weights lie: in the files that `containers.py` reads, plain, as
`quantized` finds them, or in a file of llama.cpp (`gguf`). `onnx_file.py` is the way in for an ONNX file, which
`onnx_versions.py` refuses where it is too new: `onnx_inputs.py` fixes sizes and inputs, `onnx_branches.py` takes the
branches that follow from them, `onnx_upgrade.py` brings older operators up. `onnx_import.py` makes IR of either graph.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from partc.config.sources import OnnxFile
from partc.pipeline.contract import Progress, no_progress
from partc.scratch import scratch_for_life

if TYPE_CHECKING:
    from partc.config.model import ModelConfig
    from partc.ir.graph import Module


def load_module(config: ModelConfig, *, progress: Progress = no_progress) -> Module:
    """The model of `config` as IR; see `partc.frontend.load.load_model` and `partc.frontend.onnx_file.load_onnx_file`.

    Heavy libraries are imported when it is called, torch and transformers only where the model needs them.
    """
    if isinstance(config.model, OnnxFile):
        from partc.frontend.onnx_file import load_onnx_file

        return load_onnx_file(config, config.model.path)
    _own_scratch_folder()
    from partc.frontend.load import load_model
    from partc.frontend.precision import precision_of

    module = load_model(config, progress=progress)
    module.info = replace(module.info, quantize=precision_of(config, module.graph))
    return module


def _own_scratch_folder() -> None:
    """Torch makes a folder for compiled kernels wherever it traces; this one goes when the process ends."""
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch_for_life("torch"))
