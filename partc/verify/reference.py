"""Runs the original: transformers for its models, onnxruntime for an ONNX file. Nothing of partc's graph is used."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from partc.config.model import CheckpointFolder, ModelConfig, OnnxFile, RandomModel
from partc.errors import ModelError
from partc.format.tasks import INPUT_IDS, WITH_MEDIA, generates
from partc.verify.inputs import Prompt, split_prompt

if TYPE_CHECKING:
    import onnx

Array = npt.NDArray[Any]

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""onnxruntime's option: where the external data lies of a model that is no file."""


class Reference(ABC):
    """The uncut model."""

    @abstractmethod
    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Its outputs by name."""

    @abstractmethod
    def activations(self, inputs: Mapping[str, Array], shapes: set[tuple[int, ...]]) -> list[Array]:
        """Every tensor of one of these shapes that it computes on the way."""

    def generate(self, prompt: Prompt, count: int) -> list[int]:
        """`count` greedy tokens for the prompt, end tokens included."""
        raise NotImplementedError

    def whole(self, prompt: Prompt, tokens: Sequence[int]) -> dict[str, Array]:
        """The inputs of all steps of an answer at once; nothing follows its last token."""
        return {"input_ids": np.array([[*prompt, *tokens[:-1]]], np.int64)}


def open_reference(config: ModelConfig, start: Sequence[int] = ()) -> Reference:
    """The original of a compiled model, with its weights.

    `start`: the tokens that answers begin behind, where the model reads its prompt as a source.
    """
    if isinstance(config.model, OnnxFile):
        return OnnxReference(config.model.path)
    return TransformersReference(config, start)


class TransformersReference(Reference):
    """A Hugging Face model in full precision of its compile, with transformers' own attention and cache."""

    def __init__(self, config: ModelConfig, start: Sequence[int] = ()) -> None:
        """See `open_reference`."""
        import torch

        from partc.frontend.source import open_source, random_network
        from partc.frontend.trace.export import MODEL_CLASSES
        from partc.frontend.trace.media import media_input
        from partc.frontend.trace.tensors import TensorSizes

        self.task = config.task
        self.start = list(start)
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
        return {name: _numbers(value) for name, value in result.items() if isinstance(value, torch.Tensor)}

    def activations(self, inputs: Mapping[str, Array], shapes: set[tuple[int, ...]]) -> list[Array]:
        """The results of all operations of the forward pass, found by watching torch dispatch them."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        seen: list[Array] = []

        class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                result = function(*args, **(kwargs or {}))
                if str(function) == "aten.addmm.default":
                    seen.extend(_without_bias(result, args[0], shapes))
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
        for name, tensor in tensors.items():
            if tensor.is_floating_point():  # not every model casts its pictures or its sound
                tensors[name] = tensor.to(self.network.dtype)
        if generates(self.task):
            tensors["use_cache"] = False
        return tensors


def _without_bias(result: Any, bias: Any, shapes: set[tuple[int, ...]]) -> list[Array]:
    """A product as it was before a bias was added, in each of these shapes that it can have."""
    plain = _numbers(result - bias)
    return [
        plain.reshape(shape)
        for shape in shapes
        if math.prod(shape) == plain.size and shape[-1:] == plain.shape[-1:]
    ]


def _numbers(tensor: Any) -> Array:
    """The values of a torch tensor; numpy has no bfloat16, so that becomes float32."""
    import torch

    plain = tensor.detach()
    return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())


def _first_line(error: Exception) -> str:
    """The first line of the error's message, or its type where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _takes_folder() -> bool:
    """Whether onnxruntime knows the option `_WEIGHTS_FOLDER`: from 1.21 on."""
    import onnxruntime as ort

    return tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 21)


class OnnxReference(Reference):
    """The whole ONNX file in onnxruntime."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The graph's outputs; raises ModelError where onnxruntime cannot run it."""
        return self._run(None, inputs)

    def activations(self, inputs: Mapping[str, Array], shapes: set[tuple[int, ...]]) -> list[Array]:
        """Every value of the graph, made an output of a copy that is run without graph optimisations.

        Weights beside the file stay there: with them the copy might be more than the 2 GB that protobuf writes. Where
        onnxruntime is too old for that, such a model raises ModelError.
        """
        import onnx

        model = onnx.load(self.path, load_external_data=not _takes_folder())
        known = {output.name for output in model.graph.output}
        for node in model.graph.node:
            for name in filter(None, node.output):
                if name not in known:
                    model.graph.output.append(onnx.ValueInfoProto(name=name))
        found = self._run(model, inputs)
        return [value for value in found.values() if np.shape(value) in shapes]

    def _run(self, copy: onnx.ModelProto | None, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the file; those of a copy, whose weights lie beside the file, without graph optimisations."""
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is raised, too
        if copy is not None:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry(_WEIGHTS_FOLDER, str(self.path.parent.resolve()))
        try:
            model = str(self.path) if copy is None else copy.SerializeToString()
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            names = [output.name for output in session.get_outputs()]
            return dict(zip(names, session.run(names, dict(inputs)), strict=True))
        except Exception as error:  # onnxruntime's exceptions have no base of their own
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> ModelError:
        """A hint about an original that onnxruntime cannot load or run; versions that are too new come first."""
        from partc.frontend.onnx_file import read_onnx

        try:
            read_onnx(self.path)
        except ModelError as newer:
            return newer
        return ModelError(
            f"onnxruntime cannot run the original: {_first_line(error)}",
            where=str(self.path),
            hint="does it run in onnxruntime by itself? If not, mend or export it again, and compile that",
        )
