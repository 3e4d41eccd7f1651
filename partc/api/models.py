"""The model that a path or a hub id names, as IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from partc.pipeline.contract import Progress, no_progress
from partc.printable import note

if TYPE_CHECKING:
    from partc.ir.graph import Module

Step = Callable[[str], None]
"""Called with the name of a step that begins; with an empty one when the last has ended."""


def no_step(name: str) -> None:
    """Report nothing."""


def import_model(
    model: str, *, cache: bool = True, step: Step = no_step, progress: Progress = no_progress
) -> Module:
    """The IR of a model.yaml, a checkpoint folder, a .gguf file, an .onnx file or a hub id.

    Args:
        model: a path, or the id.
        cache: use an import that was kept, where there is one, and keep this one.
        step: told when the import begins.
        progress: called within it.

    Raises:
        UserError: no such model, or it cannot be compiled.
    """
    from partc.config.model import load_model_config
    from partc.frontend import load_module
    from partc.frontend.cache import load_cached
    from partc.frontend.folder import notes_about
    from partc.frontend.precision import notes_on_formats

    config = load_model_config(model)
    step(f"import {config.name}")
    load = load_cached if cache else load_module
    module = load(config, progress=progress)
    for text in (*notes_about(config.model), *notes_on_formats(module)):
        note(text)
    return module
