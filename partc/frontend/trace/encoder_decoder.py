"""Encoder-decoders: models that read a source as a whole (a text, a sound), then answer token by token.

Their graph has the encoder's nodes, which depend on the source alone, and the decoder's. Nothing marks the border:
what does not depend on anything that changes from step to step is computed once a request (`partc.ir.once`). So keys
and values of the cross-attentions are no states: they are values that stay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache

from partc.format.tasks import SOURCE, SOURCE_LENGTH
from partc.frontend.trace.complex_pairs import complex_as_pairs
from partc.frontend.trace.last_rows import last_rows_only
from partc.frontend.trace.step_example import step_example
from partc.frontend.trace.tensors import TensorInput, outputs_of
from partc.frontend.trace.tracing import Trace, TraceCache, about_to_cross, tracing


class SourceLayer(CacheLayerMixin):
    """The cross-attention's side of a cache: keys and values as they are computed of the source."""

    is_sliding = False
    is_compileable = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing."""

    def get_seq_length(self) -> int:
        """None yet, so that they are computed."""
        return 0

    def get_max_length(self) -> int:
        """No limit of its own."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Never asked: masks of a cross-attention take the sizes of the source."""
        raise NotImplementedError

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values as they are, for the attention that follows."""
        about_to_cross()
        return key_states, value_states


class WrappedEncoderDecoder(torch.nn.Module):
    """The model behind the inputs of our contract (input_ids, position, length, index) and its source."""

    def __init__(
        self,
        network: PreTrainedModel,
        given: TensorInput | None,
        sizes: tuple[int, int, int],
        layers: int,
        seen: Callable[[Trace], None],
        outputs: list[str],
    ) -> None:
        super().__init__()
        self.network = network
        self.given = given
        self.buffer, self.max_source, self.max_batch = sizes
        self.layers = layers
        self.seen = seen
        self.outputs = outputs
        self.accepted = set(inspect.signature(network.forward).parameters)

    def forward(
        self,
        input_ids: torch.Tensor,
        position: torch.Tensor,
        length: torch.Tensor,
        index: torch.Tensor,
        past: torch.Tensor,
        source: torch.Tensor,
        source_length: torch.Tensor | None = None,
    ) -> Any:
        """The logits behind the last valid token of each sequence."""
        mask = None
        if source_length is not None:
            mask = (torch.arange(source.shape[1])[None, :] < source_length[:, None]).to(torch.int64)
        reading = Trace(position, index, length, None, has_tokens=False)
        with tracing(reading), complex_as_pairs():
            encoded = self._encode(source, mask)
        trace = Trace(position, index, length, self.buffer, has_source=True)
        self.seen(trace)
        with tracing(trace), complex_as_pairs(), last_rows_only(self.network, length):
            result = self.network(**self._arguments(trace, input_ids, past, encoded, mask))
            return outputs_of(result, self.outputs)

    def _encode(self, source: torch.Tensor, mask: torch.Tensor | None) -> Any:
        encoder = self.network.get_encoder()
        accepted = inspect.signature(encoder.forward).parameters
        if self.given is not None:
            return encoder(**{self.given.name: source.to(self.network.dtype)})
        arguments: dict[str, Any] = {"input_ids": source, "attention_mask": mask}
        return encoder(**{name: value for name, value in arguments.items() if name in accepted})

    def _arguments(
        self,
        trace: Trace,
        input_ids: torch.Tensor,
        past: torch.Tensor,
        encoded: Any,
        mask: torch.Tensor | None,
    ) -> dict[str, Any]:
        crossing = Cache(layers=[SourceLayer() for _ in range(self.layers)])
        arguments: dict[str, Any] = {
            "decoder_input_ids": input_ids,
            "encoder_outputs": encoded,
            "past_key_values": EncoderDecoderCache(TraceCache(self.layers, past), crossing),
            "use_cache": True,
        }
        if mask is not None:
            arguments["attention_mask"] = mask
        if "decoder_position_ids" in self.accepted:
            arguments["decoder_position_ids"] = trace.places
        return arguments

    def example(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs of sizes that no model gives a meaning of its own, and which of their sizes may change."""
        arguments, dynamic = step_example(self.max_batch, self.buffer)
        batch = dynamic["position"][0]
        if self.given is not None:
            arguments[SOURCE] = torch.zeros(3, *self.given.shape)
            dynamic[SOURCE] = {0: batch}
            return arguments, dynamic
        arguments[SOURCE] = torch.zeros(3, 11, dtype=torch.int64)
        arguments[SOURCE_LENGTH] = torch.ones(3, dtype=torch.int64)
        dynamic[SOURCE] = {0: batch, 1: torch.export.Dim("source", min=1, max=self.max_source)}
        dynamic[SOURCE_LENGTH] = {0: batch}
        return arguments, dynamic
