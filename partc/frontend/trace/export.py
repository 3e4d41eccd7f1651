"""A transformers model, built without its weights, as an ONNX graph with `partc` operators.

Parameters are fake tensors (shape and type, no memory); buffers are real, because the exporter needs their values and
they are not all in the checkpoint (`inv_freq`, position tables). Peak memory is that of the graph, not of the weights.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from transformers import (
    AutoModel,
    AutoModelForAudioClassification,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMultimodalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.initialization import TORCH_INIT_FUNCTIONS

from partc.errors import ModelError
from partc.format.tasks import AUDIO_TEXT, IMAGE_TEXT, WITH_MEDIA, WITH_SOURCE, generates
from partc.frontend.trace.alignment import NotAlignedError, align_queries
from partc.frontend.trace.axes import UnknownPositionsError, ask_axes, has_axes
from partc.frontend.trace.complex_pairs import complex_as_pairs
from partc.frontend.trace.decompositions import decompose_one_by_one
from partc.frontend.trace.encoder_decoder import WrappedEncoderDecoder
from partc.frontend.trace.experts import replace_experts
from partc.frontend.trace.known_values import WrittenOverError
from partc.frontend.trace.large_tensors import LargeAreFake
from partc.frontend.trace.last_rows import last_rows_only
from partc.frontend.trace.media import Media, media_input
from partc.frontend.trace.multimodal import WrappedMultimodal
from partc.frontend.trace.placeholders import FeaturesFound, NoFeaturesError, TextLooksAheadError
from partc.frontend.trace.recurrent import StateLostError, has_own_cache, recurrences
from partc.frontend.trace.sizes import simplify_sizes
from partc.frontend.trace.step_example import step_example
from partc.frontend.trace.tensors import TensorInput, TensorSizes, WrappedTensors, outputs_of, tensor_input
from partc.frontend.trace.tracing import (
    NotCausalError,
    Trace,
    TraceCache,
    UnknownCacheError,
    register,
    tracing,
)
from partc.ir.weights import WeightExpr
from partc.quiet import silenced

OPSET = 24
"""Standard operators of exported graphs: the first version that has all of TensorScatter, Swish and RotaryEmbedding."""

_CACHES = ("cache_params", "cache", "past_key_values")
"""Names of the argument that is a cache: of recurrent models, of theirs from transformers 5.24 on, of all others."""
_OWN_CACHES = {"state"}
"""Arguments by which models take states that are no cache of transformers."""

MODEL_CLASSES: dict[str, Any] = {
    "text-generation": AutoModelForCausalLM,
    "text2text-generation": AutoModelForSeq2SeqLM,
    "automatic-speech-recognition": AutoModelForSpeechSeq2Seq,
    "text-classification": AutoModelForSequenceClassification,
    "feature-extraction": AutoModel,
    "image-classification": AutoModelForImageClassification,
    "audio-classification": AutoModelForAudioClassification,
    IMAGE_TEXT: AutoModelForMultimodalLM,
    AUDIO_TEXT: AutoModelForMultimodalLM,
}


@dataclass(frozen=True)
class Exported:
    """An exported model."""

    model: onnx_ir.Model
    network: PreTrainedModel
    """The traced model, its parameters fake."""
    sources: dict[str, WeightExpr]
    """Sources of the values of its parameters and stored buffers, by name."""
    outputs: tuple[str, ...]
    """Names of the graph's outputs, in order."""
    tensor: TensorInput | None = None
    """The tensor that it takes instead of token ids."""
    media: Media | None = None
    """The picture or the sound that it takes besides them."""


@dataclass(frozen=True)
class Sizes:
    """The largest request."""

    max_sequence: int
    max_source: int
    """Tokens of a text that is read before."""
    max_batch: int
    tensor: TensorSizes = field(default_factory=TensorSizes)


class _Wrapped(torch.nn.Module):
    """The model behind the inputs of our contract (input_ids, position, length, index)."""

    def __init__(
        self,
        network: PreTrainedModel,
        buffer: int | None,
        pass_mask: bool,
        seen: Callable[[Trace], None],
        outputs: list[str],
    ) -> None:
        super().__init__()
        self.seen = seen  # torch.export undoes what a module writes to itself, so the trace is handed out
        self.outputs = outputs
        self.network = network
        self.buffer = buffer
        self.pass_mask = pass_mask
        signature = inspect.signature(network.forward)
        self.accepted = set(signature.parameters)

    def forward(
        self,
        input_ids: torch.Tensor,
        position: torch.Tensor,
        length: torch.Tensor,
        index: torch.Tensor,
        past: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> Any:
        trace = Trace(position, index, length, self.buffer)
        self.seen(trace)
        last_rows = contextlib.nullcontext() if self.buffer is None else last_rows_only(self.network, length)
        states = recurrences(self.network, trace.recurrence if self.buffer is not None else None)
        with tracing(trace), states, complex_as_pairs(), last_rows:
            result = self.network(**self._arguments(trace, input_ids, past, token_type_ids))
            return outputs_of(result, self.outputs)

    def _arguments(
        self, trace: Trace, input_ids: torch.Tensor, past: torch.Tensor, token_type_ids: Any
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {"input_ids": input_ids}
        if self.buffer is not None:
            layers = _layer_count(self.network.config)
            name = next((name for name in _CACHES if name in self.accepted), _CACHES[-1])
            # Models with a cache of their own kind are traced as if they had none.
            has_own = self.accepted & _OWN_CACHES or has_own_cache(self.network)
            arguments |= {name: TraceCache(layers, past), "use_cache": not has_own}
        else:
            arguments["attention_mask"] = (trace.index[None, :] < trace.length[:, None]).to(torch.int64)
            if "use_cache" in self.accepted:
                arguments["use_cache"] = False
        if self.pass_mask and self.buffer is not None:
            arguments["attention_mask"] = torch.ones(input_ids.shape[0], self.buffer, dtype=torch.int64)
        if self.buffer is not None and "position_ids" in self.accepted:
            arguments["position_ids"] = trace.places
        if token_type_ids is not None:
            arguments["token_type_ids"] = token_type_ids
        known = "kwargs" in self.accepted
        return {
            key: value
            for key, value in arguments.items()
            if key in self.accepted or (known and key != "position_ids")
        }


def _layer_count(config: PretrainedConfig) -> int:
    text = config.get_text_config(decoder=True)
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers"):
        count = getattr(text, name, None)
        if isinstance(count, int):
            # Some families keep more than one cache a layer; what is not used leaves no trace.
            return 4 * count
    return 256


@contextlib.contextmanager
def _fake_parameters(mode: FakeTensorMode) -> Iterator[None]:
    """Every parameter becomes a fake tensor as soon as a module registers it; its memory is never touched."""
    register_parameter = torch.nn.Module.register_parameter

    def register_fake(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        if isinstance(parameter, FakeTensor):  # tied to another one, or too large to be made
            parameter.requires_grad_(False)
        elif parameter is not None:
            fake = mode.from_tensor(parameter.detach(), static_shapes=True)
            parameter = torch.nn.Parameter(fake, requires_grad=False)
        register_parameter(module, name, parameter)

    torch.nn.Module.register_parameter = register_fake  # type: ignore[method-assign, assignment]
    try:
        with LargeAreFake(mode):
            yield
    finally:
        torch.nn.Module.register_parameter = register_parameter  # type: ignore[method-assign]


@contextlib.contextmanager
def _no_random_numbers() -> Iterator[None]:
    """Nothing is drawn for fake tensors: they have no values, and some draws ask for them."""

    def only_real(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def initialise(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
            return tensor if isinstance(tensor, FakeTensor) else function(tensor, *arguments, **options)

        return initialise

    before = dict(TORCH_INIT_FUNCTIONS)
    TORCH_INIT_FUNCTIONS.update({name: only_real(function) for name, function in before.items()})
    try:
        yield
    finally:
        TORCH_INIT_FUNCTIONS.update(before)


def build_fake(
    config: PretrainedConfig, task: str, dtype: torch.dtype, attention: str, mode: FakeTensorMode
) -> Any:
    """The model of a config with fake parameters and real buffers."""
    options = {"experts_implementation": "batched_mm"} if hasattr(config, "_experts_implementation") else {}
    with _fake_parameters(mode), _no_random_numbers():
        network = MODEL_CLASSES[task].from_config(
            config, attn_implementation=attention, dtype=dtype, **options
        )
    _compute_tables(network)
    replace_experts(network)
    return network.eval()


def _compute_tables(network: PreTrainedModel) -> None:
    """Give real values to parameters that no checkpoint holds, since the model computes them (sinusoidal positions)."""
    for name in network._keys_to_ignore_on_save or ():
        path, _, key = name.rpartition(".")
        module = network.get_submodule(path)
        fake = module._parameters.get(key)
        if fake is not None:
            del module._parameters[key]
            module.register_buffer(key, torch.empty(fake.shape, dtype=fake.dtype), persistent=False)
            network._init_weights(module)


Fit = Callable[[PreTrainedModel], dict[str, WeightExpr]]
"""Finds the weights of a model before it is traced; parameters that are not tied after all are parted in it."""


def export_model(config: PretrainedConfig, task: str, dtype: torch.dtype, sizes: Sizes, fit: Fit) -> Exported:
    """Trace the model of `config`, once `fit` has found its weights.

    The attention interface comes first; a family that does not use it is traced with its own attention.

    Raises:
        ModelError: neither way works; the reason of the first is named.
    """
    register()
    failures: list[Exception] = []
    for attention, pass_mask in (("partc", False), ("partc", True), ("eager", False), ("eager", True)):
        try:
            return _export(config, task, dtype, sizes, attention, pass_mask, fit)
        except ModelError:
            raise
        except Exception as error:  # whatever a model's own code raises while it is traced
            failures.append(error)
            if isinstance(error, NotCausalError | StateLostError):
                break
        if (task != "text-generation") and pass_mask is False and attention == "eager":
            break
    raise ModelError(
        f"the model cannot be traced as {task}: {_reason(failures)}",
        where=f"model_type {config.model_type}",
        hint="export it to ONNX yourself and compile that file with task: graph",
    ) from failures[0]


def _reason(failures: Sequence[Exception]) -> str:
    """The failure that says most: one of ours, else that of the first way."""
    ours = (error for error in failures if isinstance(error, _OURS))
    error = next(ours, failures[0])
    if isinstance(error, GuardOnDataDependentSymNode):
        return "its code takes branches that depend on values"
    lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
    kind = "" if isinstance(error, _OURS) else f"{type(error).__name__}: "
    return f"{kind}{lines[0][:300] if lines else ''}"


class _NotOursError(Exception):
    """The trace went through, but not in the way that was asked for."""


_OURS = (
    _NotOursError,
    NoFeaturesError,
    NotAlignedError,
    NotCausalError,
    StateLostError,
    TextLooksAheadError,
    UnknownCacheError,
    UnknownPositionsError,
    WrittenOverError,
)
"""Reasons in our own words."""


def _export(
    config: PretrainedConfig,
    task: str,
    dtype: torch.dtype,
    sizes: Sizes,
    attention: str,
    pass_mask: bool,
    fit: Fit,
) -> Exported:
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    network = build_fake(config, task, dtype, attention, mode)
    sources = fit(network)
    traces: list[Trace] = []
    outputs: list[str] = []
    buffer = sizes.max_sequence if generates(task) else None
    is_multimodal = task in WITH_MEDIA
    tensor = None if is_multimodal else tensor_input(type(network), config, sizes.tensor)
    media = media_input(type(network), config, task, sizes.tensor) if is_multimodal else None
    wrapped: _Wrapped | WrappedTensors | WrappedEncoderDecoder | WrappedMultimodal
    if media is not None:
        layers = _layer_count(config)
        if has_axes(network):
            media = _counted(network, media, sizes.max_sequence, layers)
        axes = ask_axes(network, media)
        wrapped = WrappedMultimodal(network, media, axes, sizes.max_sequence, layers, traces.append, outputs)
        arguments, dynamic = wrapped.example()
    elif task in WITH_SOURCE:
        limits = (sizes.max_sequence, sizes.max_source, sizes.max_batch)
        layers = _layer_count(config)
        wrapped = WrappedEncoderDecoder(network, tensor, limits, layers, traces.append, outputs)
        arguments, dynamic = wrapped.example()
    elif tensor is None:
        wrapped = _Wrapped(network, buffer, pass_mask, traces.append, outputs)
        arguments, dynamic = _example(wrapped, sizes)
    else:
        wrapped = WrappedTensors(network, tensor, traces.append, outputs)
        arguments, dynamic = wrapped.example(sizes.max_batch)
    with torch.no_grad(), silenced():
        program = _trace(wrapped, arguments, dynamic)
        _check_trace(traces[-1], task, attention)
        if buffer is not None:
            align_queries(program, buffer)
        simplify_sizes(program)
        decompose_one_by_one(program)
        exported = torch.onnx.export(
            program, dynamo=True, optimize=False, verbose=False, opset_version=OPSET, external_data=False
        )
    assert exported is not None
    if media is not None:
        media = replace(media, rows=traces[-1].features)
    return Exported(exported.model, network, sources, tuple(outputs), tensor, media)


def _trace(wrapped: torch.nn.Module, arguments: dict[str, Any], dynamic: dict[str, Any]) -> ExportedProgram:
    return torch.export.export(
        wrapped,
        (),
        kwargs=arguments,
        dynamic_shapes=dynamic,
        strict=False,
        prefer_deferred_runtime_asserts_over_guards=True,
    )


def _counted(network: PreTrainedModel, media: Media, max_sequence: int, layers: int) -> Media:
    """The same with its rows of features: the model is traced up to where it writes them."""
    wrapped = WrappedMultimodal(network, media, None, max_sequence, layers, lambda _: None, [], counts=True)
    try:
        with torch.no_grad(), silenced():
            _trace(wrapped, *wrapped.example())
    except FeaturesFound as found:
        return replace(media, rows=found.rows)
    raise NoFeaturesError


def _check_trace(trace: Trace, task: str, attention: str) -> None:
    if generates(task) and trace.updates == 0 and not trace.recurrence.states:
        raise _NotOursError(
            "it keeps no cache and no state that partc can hold (a bidirectional model, or a cache of its own)"
        )
    if attention == "partc" and trace.attentions == 0 and trace.updates:
        raise _NotOursError("it does not use the attention interface")


def _example(wrapped: _Wrapped, sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of sizes that no model gives a meaning of its own, and which of their sizes may change."""
    arguments, dynamic = step_example(sizes.max_batch, sizes.max_sequence)
    has_types = (
        getattr(wrapped.network.config, "type_vocab_size", 0) > 1 and "token_type_ids" in wrapped.accepted
    )
    if wrapped.buffer is None and has_types:
        arguments["token_type_ids"] = torch.zeros(3, 7, dtype=torch.int64)
        dynamic["token_type_ids"] = dynamic["input_ids"]
    return arguments, dynamic
