"""The front end: Hugging Face checkpoints and ONNX files become IR without a weight being loaded.

`load.py` is the way in: `source.py` finds the model, `export.py` and `tracing.py` make an ONNX graph of it,
`checkpoint.py` and `symbolic.py` find out where its weights lie, `onnx_import.py` makes IR of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from partc.pipeline.contract import Progress, no_progress

if TYPE_CHECKING:
    from partc.config.model import ModelConfig
    from partc.ir.graph import Module


def load_module(config: ModelConfig, *, progress: Progress = no_progress) -> Module:
    """See `partc.frontend.load.load_module`; torch and transformers are imported when it is called."""
    from partc.frontend.load import load_module as load

    return load(config, progress=progress)
