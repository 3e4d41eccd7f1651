"""Runs the original: transformers for its models, onnxruntime for an ONNX file (`onnx_reference.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder, OnnxFile, RandomModel
from partc.errors import ModelError, UserError
from partc.format.tasks import INPUT_IDS, WITH_MEDIA, generates
from partc.frontend.trace.statements import is_computation
from partc.verifier.cut_graph import CutGraph
from partc.verifier.inputs import Prompt, split_prompt
from partc.verifier.operations import numbers, watch_operations

Array = npt.NDArray[Any]


class Reference(ABC):
    """The uncut model."""

    @abstractmethod
    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Its outputs by name."""

    @abstractmethod
    def counterparts(self, inputs: Mapping[str, Array], names: Collection[str]) -> dict[str, Array]:
        """Name of a value of the cut model → the tensor of the original that it is, with all rows.

        It is known by identity: no other tensor counts, however near it is. A value without an entry has no counterpart
        that is known.
        """

    def generate(self, prompt: Prompt, count: int) -> list[int]:
        """`count` greedy tokens for the prompt, end tokens included."""
        raise NotImplementedError

    def whole(self, prompt: Prompt, tokens: Sequence[int]) -> dict[str, Array]:
        """The inputs of all steps of an answer at once; nothing follows its last token."""
        return {"input_ids": np.array([[*prompt, *tokens[:-1]]], np.int64)}


def open_reference(
    config: ModelConfig, start: Sequence[int] = (), disable: tuple[str, ...] = ()
) -> Reference:
    """The original of a compiled model, with its weights.

    Args:
        config: what was compiled.
        start: the tokens that answers begin behind, where the model reads its prompt as a source.
        disable: fusions that the compile left out.
    """
    if isinstance(config.model, OnnxFile):
        from partc.verifier.onnx_reference import OnnxReference

        return OnnxReference(config.model.path, config, disable)
    return TransformersReference(config, start, disable)


class TransformersReference(Reference):
    """A Hugging Face model in full precision of its compile, with transformers' own attention and cache."""

    def __init__(self, config: ModelConfig, start: Sequence[int] = (), disable: tuple[str, ...] = ()) -> None:
        """See `open_reference`."""
        import torch

        from partc.frontend.load import load_network
        from partc.frontend.source import open_source, random_network
        from partc.frontend.trace.media import media_input
        from partc.frontend.trace.tensors import TensorSizes

        self.graph = CutGraph(config, disable)
        self.task = config.task
        self.start = list(start)
        dtype = getattr(torch, config.dtype)
        source = open_source(config.model)  # type: ignore[arg-type]
        if isinstance(config.model, RandomModel):
            assert source.random is not None
            self.network = random_network(source.random, config.task, dtype)
        else:
            folder = config.model.folder if isinstance(config.model, CheckpointFolder) else source.folder
            assert folder is not None
            try:
                self.network = load_network(source, folder, config, dtype)
            except UserError:
                raise
            except Exception as error:  # transformers raises what its loading code comes across
                raise ModelError(
                    f"transformers cannot load it: {_first_line(error)}",
                    where=str(folder),
                    hint="is this the checkpoint that the build was made from?",
                ) from error
        sizes = TensorSizes(config.image_size, config.samples, source.folder)
        self.media = (
            media_input(type(self.network), source.config, config.task, sizes)
            if config.task in WITH_MEDIA
            else None
        )

    def generate(self, prompt: Prompt, count: int) -> list[int]:
        """Greedy tokens by transformers' own `generate`; it never stops early."""
        import torch
        from transformers import GenerationConfig

        given = self._arguments(self._read(prompt))
        # A plain config instead of the model's own, which may force, forbid or penalise tokens.
        plain = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=count,
            pad_token_id=0,
            decoder_start_token_id=self.start[0] if self.start else None,
            use_cache=_cache_holds(self.network.config),
        )
        self.network.generation_config = plain
        del given["use_cache"]
        if self.start:
            given["decoder_input_ids"] = torch.tensor([self.start])
        if "input_ids" in given:
            given["attention_mask"] = torch.ones_like(given["input_ids"])
        with torch.no_grad():
            tokens = self.network.generate(generation_config=plain, **given)
        return [int(token) for token in tokens[0, -count:]]

    def whole(self, prompt: Prompt, tokens: Sequence[int]) -> dict[str, Array]:
        """See `Reference`; the decoder of a model that reads a source has steps, its encoder has none."""
        ids, tensors = split_prompt(prompt)
        if not self.start:
            whole = np.array([[*ids, *tokens[:-1]]], np.int64)
            return self._read({INPUT_IDS: whole, **tensors})
        answer = np.array([[*self.start, *tokens[:-1]]], np.int64)
        return {**self._read(prompt), "decoder_input_ids": answer}

    def _read(self, prompt: Prompt) -> dict[str, Array]:
        """What a request brings, as the original takes it: with the facts of a picture, and the kinds of tokens."""
        given = dict(prompt) if isinstance(prompt, Mapping) else {INPUT_IDS: np.array([prompt], np.int64)}
        if self.media is None:
            return given
        if len(given) > 1:
            given |= {name: fact.numpy() for name, fact in self.media.facts.items()}
        from partc.frontend.trace.multimodal import accepted_arguments

        kinds = (given[INPUT_IDS] == self.media.token).astype(np.int64)
        accepted = accepted_arguments(self.network)
        return given | {name: kinds for name in ("token_type_ids", "mm_token_type_ids") if name in accepted}

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs that are tensors."""
        import torch

        with torch.no_grad():
            result = self.network(**self._arguments(inputs))
        return {name: numbers(value) for name, value in result.items() if isinstance(value, torch.Tensor)}

    def counterparts(self, inputs: Mapping[str, Array], names: Collection[str]) -> dict[str, Array]:
        """See `Reference`; the origin of a value is a computation of the model's code (`statements.py`)."""

        def tensors(needed: set[str]) -> dict[str, Array]:
            computed = needed - inputs.keys()
            run = partial(self.network, **self._arguments(inputs))
            return {**inputs, **watch_operations(self.network, run, computed)}

        return self.graph.counterparts(
            names, lambda origin: origin in inputs or is_computation(origin), tensors
        )

    def _arguments(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        import torch

        tensors: dict[str, Any] = {
            name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in inputs.items()
        }
        for name, tensor in tensors.items():
            if tensor.is_floating_point():  # not every model casts its pictures or its sound
                tensors[name] = tensor.to(self.network.dtype)
        if generates(self.task):
            tensors["use_cache"] = False
        return tensors


def _cache_holds(config: Any) -> bool:
    """Whether a cache of transformers has all layers of the decoder: it counts those of the encoder."""
    layers = getattr(config, "num_decoder_layers", None)
    return layers is None or layers <= config.num_hidden_layers


def _first_line(error: Exception) -> str:
    """The first line of the error's message, or its type where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
