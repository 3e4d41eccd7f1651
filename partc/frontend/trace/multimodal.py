"""Models that read a picture or a sound among their tokens: an encoder, and a decoder that takes its features.

The graph has both. The encoder's nodes depend on the picture alone, so they are computed once a request
(`partc.ir.once`), and what it leaves is kept where the decoder's first layer reads it. A prompt is read in one step.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from partc.frontend.trace.axes import Axes
from partc.frontend.trace.complex_pairs import complex_as_pairs
from partc.frontend.trace.known_values import KnownValues, Unpadded
from partc.frontend.trace.last_rows import last_rows_only
from partc.frontend.trace.media import Media
from partc.frontend.trace.placeholders import NoFeaturesError, Placeholders, placeholders_of
from partc.frontend.trace.recurrent import recurrences
from partc.frontend.trace.step_example import step_example
from partc.frontend.trace.tensors import outputs_of
from partc.frontend.trace.tracing import Trace, TraceCache, remember, tracing

MEDIA = "media"
"""Argument of the traced model that holds the tensors of the picture or sound."""
_ENCODERS = ("get_image_features", "get_audio_features")
"""Methods that compute features; where a model has none of them, its encoders are models inside of it."""

_UNCHECKED = "TRANSFORMERS_DISABLE_TORCH_CHECK"
"""Set: models do not compare the number of placeholders with the features, which a trace does not know."""


class WrappedMultimodal(torch.nn.Module):
    """The model behind the inputs of our contract (input_ids, position, length, index) and a picture or a sound."""

    def __init__(
        self,
        network: PreTrainedModel,
        media: Media,
        axes: Axes | None,
        buffer: int,
        layers: int,
        seen: Callable[[Trace], None],
        outputs: list[str],
        *,
        counts: bool = False,
    ) -> None:
        """`counts`: end a trace where features are written, with their rows."""
        super().__init__()
        self.network = network
        self.given = media
        self.axes = axes
        self.buffer = buffer
        self.layers = layers
        self.seen = seen
        self.outputs = outputs
        self.counts = counts
        self.accepted = accepted_arguments(network)

    def forward(
        self,
        input_ids: torch.Tensor,
        position: torch.Tensor,
        length: torch.Tensor,
        index: torch.Tensor,
        past: torch.Tensor,
        media: Mapping[str, torch.Tensor],
    ) -> Any:
        """The logits behind the last valid token of each sequence.

        Raises:
            FeaturesFound: the model is traced to count the rows of the features.
            NoFeaturesError: the model writes none.
        """
        trace = Trace(position, index, length, self.buffer, has_source=True)
        self.seen(trace)
        is_placeholder = placeholders_of(input_ids, position, self.given.token)
        with (
            tracing(trace),
            recurrences(self.network, trace.recurrence),
            complex_as_pairs(),
            last_rows_only(self.network, length),
            encoders_read(self.network, Trace(position, index, length, None, has_tokens=False)),
        ):
            rank = self._rank(is_placeholder)
            kinds = self._kinds(is_placeholder)
            with (
                KnownValues(),
                Placeholders(rank, position, kinds, counts=self.counts) as placeholders,
            ):
                arguments = self._arguments(
                    trace, input_ids, past, self._places(trace, rank, is_placeholder), kinds
                )
                result = self.network(**arguments, **self._tensors(media), **self.given.facts)
            if not placeholders.rows:
                raise NoFeaturesError
            trace.features = placeholders.rows
            return outputs_of(result, self.outputs)

    def _rank(self, is_placeholder: torch.Tensor) -> torch.Tensor:
        """Placeholders before each token [batch, sequence]: in its step, or in its sequence where places need that."""
        marks = is_placeholder.to(torch.int64)
        inside = torch.cumsum(marks, 1) - marks
        return inside if self.axes is None else inside + remember("placeholders", is_placeholder)[:, None]

    def _kinds(self, is_placeholder: torch.Tensor) -> torch.Tensor:
        """Kinds of tokens i64[batch, rows of a cache]: they say which see each other whatever their order."""
        kinds = is_placeholder.to(torch.int64)
        rest = torch.zeros(kinds.shape[0], self.buffer - kinds.shape[1], dtype=torch.int64)
        return torch.cat([kinds, rest], 1)

    def _places(self, trace: Trace, rank: torch.Tensor, is_placeholder: torch.Tensor) -> torch.Tensor:
        return trace.places if self.axes is None else self.axes.positions(trace.places, rank, is_placeholder)

    def _tensors(self, media: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.to(self.network.dtype) for name, tensor in media.items()}

    def _arguments(
        self,
        trace: Trace,
        input_ids: torch.Tensor,
        past: torch.Tensor,
        places: torch.Tensor,
        kinds: torch.Tensor,
    ) -> dict[str, Any]:
        arguments = {
            "input_ids": input_ids,
            "past_key_values": TraceCache(self.layers, past),
            "use_cache": True,
            "position_ids": places,
            "token_type_ids": kinds,
            "mm_token_type_ids": kinds,
        }
        return {name: value for name, value in arguments.items() if name in self.accepted}

    def example(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs of sizes that no model gives a meaning of its own, and which of their sizes may change."""
        # Models may branch on a single token, whose picture is in the cache; their way with prompts serves it as well.
        arguments, dynamic = step_example(1, self.buffer, least=4)
        arguments[MEDIA] = {name: torch.zeros(shape) for name, shape in self.given.tensors.items()}
        return arguments, {**dynamic, MEDIA: {name: {} for name in self.given.tensors}}


def accepted_arguments(network: PreTrainedModel) -> set[str]:
    """The arguments of the model and of those inside of it, to which it hands on what it does not know."""
    models = [part for part in network.modules() if isinstance(part, PreTrainedModel)]
    return {name for part in models for name in inspect.signature(part.forward).parameters}


@contextlib.contextmanager
def encoders_read(network: PreTrainedModel, reading: Trace) -> Iterator[None]:
    """Let what reads the picture or sound work for `reading`: its attention has no cache, and sees all of its rows."""

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with tracing(reading), Unpadded():
                return function(*arguments, **options)

        return call

    ours = (type(network.config), type(network.config.get_text_config()))
    replaced = [
        (part, name)
        for part in network.modules()
        for name in (*_ENCODERS, "forward")
        if hasattr(part, name) and (name != "forward" or _is_encoder(part, ours))
    ]
    for part, name in replaced:
        setattr(part, name, within(getattr(part, name)))
    before = os.environ.get(_UNCHECKED)
    os.environ[_UNCHECKED] = "1"
    try:
        yield
    finally:
        for part, name in replaced:
            delattr(part, name)
        if before is None:
            del os.environ[_UNCHECKED]
        else:
            os.environ[_UNCHECKED] = before


def _is_encoder(part: torch.nn.Module, ours: tuple[type, ...]) -> bool:
    """Whether a part is a model with a config of its own: neither the whole nor the one that reads the text."""
    return isinstance(part, PreTrainedModel) and not isinstance(part.config, ours)
