"""Runs the original: transformers for its models, onnxruntime for an ONNX file. Nothing of partc's graph is used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.config.model import CheckpointFolder, ModelConfig, OnnxFile, RandomModel
from partc.errors import ModelError

Array = npt.NDArray[Any]


class Reference(ABC):
    """The uncut model."""

    @abstractmethod
    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Its outputs by name."""

    @abstractmethod
    def activations(self, inputs: Mapping[str, Array], shapes: set[tuple[int, ...]]) -> list[Array]:
        """Every tensor of one of these shapes that it computes on the way."""

    def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """`count` greedy tokens after the prompt, end tokens included."""
        raise NotImplementedError


def open_reference(config: ModelConfig) -> Reference:
    """The original of a compiled model, with its weights."""
    if isinstance(config.model, OnnxFile):
        return OnnxReference(config.model.path)
    return TransformersReference(config)


class TransformersReference(Reference):
    """A Hugging Face model in full precision of its compile, with transformers' own attention and cache."""

    def __init__(self, config: ModelConfig) -> None:
        import torch

        from partc.frontend.export import MODEL_CLASSES
        from partc.frontend.source import open_source, random_network

        self.task = config.task
        dtype = getattr(torch, config.dtype)
        source = open_source(config.model)  # type: ignore[arg-type]
        if isinstance(config.model, RandomModel):
            assert source.random is not None
            self.network = random_network(source.random, config.task, dtype)
        else:
            folder = config.model.folder if isinstance(config.model, CheckpointFolder) else source.folder
            try:
                self.network = MODEL_CLASSES[config.task].from_pretrained(folder, dtype=dtype).eval()
            except Exception as error:  # transformers raises what its loading code comes across
                raise ModelError(
                    f"transformers cannot load it: {str(error).splitlines()[0]}",
                    where=str(folder),
                    hint="is this the checkpoint that the build was made from?",
                ) from error

    def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """Greedy tokens by transformers' own `generate`; it never stops early."""
        import torch
        from transformers import GenerationConfig

        ids = torch.tensor([list(prompt)])
        # A plain config instead of the model's own, which may force, forbid or penalise tokens.
        plain = GenerationConfig(do_sample=False, num_beams=1, max_new_tokens=count, pad_token_id=0)
        self.network.generation_config = plain
        with torch.no_grad():
            tokens = self.network.generate(ids, attention_mask=torch.ones_like(ids), generation_config=plain)
        return [int(token) for token in tokens[0, len(prompt) :]]

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs that are tensors."""
        import torch

        with torch.no_grad():
            result = self.network(**self._arguments(inputs))
        return {name: _numbers(value) for name, value in result.items() if isinstance(value, torch.Tensor)}

    def activations(self, inputs: Mapping[str, Array], shapes: set[tuple[int, ...]]) -> list[Array]:
        """What any operation of the forward pass returned, found by watching torch dispatch it."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        seen: list[Array] = []

        class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                result = function(*args, **(kwargs or {}))
                for item in result if isinstance(result, tuple | list) else [result]:
                    if isinstance(item, torch.Tensor) and tuple(item.shape) in shapes:
                        seen.append(_numbers(item.clone()))
                return result

        with torch.no_grad(), Watch():  # type: ignore[no-untyped-call]
            self.network(**self._arguments(inputs))
        return seen

    def _arguments(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        import torch

        tensors: dict[str, Any] = {
            name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in inputs.items()
        }
        if self.task == "text-generation":
            tensors["use_cache"] = False
        return tensors


def _numbers(tensor: Any) -> Array:
    """The values of a torch tensor; numpy has no bfloat16, so that becomes float32."""
    import torch

    plain = tensor.detach()
    return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())


class OnnxReference(Reference):
    """The whole ONNX file in onnxruntime."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The graph's outputs."""
        import onnxruntime as ort

        session = ort.InferenceSession(str(self.path), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    def activations(self, inputs: Mapping[str, Array], shapes: set[tuple[int, ...]]) -> list[Array]:
        """Every value of the graph, made an output of a copy that is run without graph optimisations."""
        import onnx
        import onnxruntime as ort

        model = onnx.load(self.path)
        known = {output.name for output in model.graph.output}
        for node in model.graph.node:
            for name in filter(None, node.output):
                if name not in known:
                    model.graph.output.append(onnx.ValueInfoProto(name=name))
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [value for value in session.run(None, dict(inputs)) if np.shape(value) in shapes]
