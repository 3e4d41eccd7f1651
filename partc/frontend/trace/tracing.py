"""Attention, masks and KV cache of partc, as transformers models see them while they are traced.

`transformers` lets attention and masks be registered by name. Under the name `partc` a model's attention becomes one
node (`partc.Attention`) instead of dozens, and its cache update another (`partc.UpdateState`), so every family that
uses the interface is compiled with no code of its own. A family with an attention of its own (BLOOM) is traced as
`eager`: its attention stays as plain operators, but the cache and the masks are still ours, so the contract of the
states is the same: a buffer of `max_sequence` rows, of which `position + length` are valid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    AttentionMaskInterface,
    bidirectional_mask_function,
)

from partc.frontend.trace.known_values import is_plain
from partc.frontend.trace.own_operators import symbolic_name
from partc.frontend.trace.recurrent import Recurrence
from partc.ir.operators import ATTENTION, UPDATE_STATE
from partc.ir.operators.attention import Visibility

PROBED_QUERIES = 64
"""Rows of a mask that are compared with a named kind before it is believed to be that kind."""


LOOKS_AHEAD = Visibility(causal=False)
"""The kind of every mask that shows later tokens; it says nothing of what else the mask hides."""


class NotCausalError(Exception):
    """A decoder's attention looks ahead, so that it cannot keep a cache."""

    def __init__(self) -> None:
        super().__init__("its attention is not causal: it looks at later tokens, so it cannot keep a cache")


class UnknownCacheError(AttributeError):
    """A model keeps something that is neither rows of tokens nor a state that is known."""

    def __init__(self, name: str) -> None:
        """`name`: what it asks its cache for."""
        super().__init__(f"its cache keeps something that partc does not know: its code calls `{name}`")


@dataclass
class Trace:
    """State of one trace: its step inputs and what has been seen so far."""

    position: torch.Tensor
    """i64[batch]: valid rows of the caches."""
    index: torch.Tensor
    """i64[sequence]: 0, 1, …"""
    length: torch.Tensor
    """i64[batch]: valid new tokens."""
    buffer: int | None
    """Rows of a cache (max_sequence); None where there are no caches."""
    has_tokens: bool = True
    """Whether the model reads token ids, of which `length` are valid; else it takes a picture or a sound."""
    has_source: bool = False
    """Whether attentions may look at a source besides, whose mask is given."""
    crosses: bool = False
    """Whether the attention that follows looks at the source."""
    kinds: dict[int, tuple[torch.Tensor, Visibility]] = field(default_factory=dict)
    """id of a mask tensor → the tensor (kept alive) and its kind."""
    attentions: int = 0
    features: int = 0
    """Rows of a picture or sound that were written over placeholders."""
    updates: int = 0
    """Caches that were written to."""
    recurrence: Recurrence = field(init=False)

    @property
    def places(self) -> torch.Tensor:
        """Places of the tokens in their sequences, i64[batch, sequence]."""
        return self.position[:, None] + self.index[None, :]

    def __post_init__(self) -> None:
        self.recurrence = Recurrence(self.length)


_CURRENT: ContextVar[Trace] = ContextVar("partc_trace")


@contextlib.contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Let the registered functions work for `trace`; eager masks are ours as long as it lasts."""
    token = _CURRENT.set(trace)
    eager = ALL_MASK_ATTENTION_FUNCTIONS["eager"]
    ALL_MASK_ATTENTION_FUNCTIONS["eager"] = _additive_mask
    try:
        yield trace
    finally:
        ALL_MASK_ATTENTION_FUNCTIONS["eager"] = eager
        _CURRENT.reset(token)


def register() -> None:
    """Make the attention implementation `partc` known to transformers; harmless when repeated."""
    AttentionInterface.register("partc", _attention)
    AttentionMaskInterface.register("partc", _mask)


def about_to_cross() -> None:
    """Note that the attention that follows looks at the source."""
    _CURRENT.get().crosses = True


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """One `partc.Attention` node: [batch, heads, sequence, d] in, [batch, sequence, heads, d] out."""
    trace = _CURRENT.get()
    trace.attentions += 1
    crosses, trace.crosses = trace.crosses, False
    kind, mask = _kind_of(trace, module, attention_mask, False if crosses else is_causal)
    bias = others.get("position_bias")
    if bias is not None:
        mask = _biased(mask, bias)
    batch, heads, sequence, width = query.shape
    if others.get("indices") is not None:
        mask = _only_chosen(mask, others["indices"], key.shape[2])
    # Where all keys are seen, no place counts; and windows of pictures have rows of their own in the batch.
    position = trace.position if kind.hides or (trace.has_tokens and not crosses) else None
    inputs = [query, key, value, position, mask, s_aux]
    while inputs[-1] is None:
        inputs.pop()
    attributes: dict[str, Any] = {
        "scale": float(width**-0.5 if scaling is None else scaling),
        "causal": int(kind.causal),
        "window": kind.window,
        "chunk": kind.chunk,
        "softcap": float(softcap or 0.0),
    }
    output = torch.onnx.ops.symbolic(
        symbolic_name(ATTENTION),
        inputs,
        attributes,
        dtype=query.dtype,
        shape=(batch, heads, sequence, value.shape[-1]),
        version=1,
    )
    return output.transpose(1, 2).contiguous(), None


def _biased(mask: torch.Tensor | None, bias: torch.Tensor) -> torch.Tensor:
    if mask is None:
        return bias
    return torch.where(mask, bias, torch.finfo(bias.dtype).min) if mask.dtype == torch.bool else bias + mask


def _only_chosen(mask: torch.Tensor | None, indices: torch.Tensor, keys: int) -> torch.Tensor:
    """The mask without the keys that an indexer did not choose; `indices` is [batch, sequence, chosen]."""
    none = torch.zeros((*indices.shape[:2], keys), dtype=torch.bool)
    chosen = none.scatter(-1, indices.long(), True)[:, None]
    if mask is None:
        return chosen
    return (
        mask & chosen if mask.dtype == torch.bool else torch.where(chosen, mask, torch.finfo(mask.dtype).min)
    )


def _kind_of(
    trace: Trace, module: torch.nn.Module, mask: torch.Tensor | None, is_causal: bool | None
) -> tuple[Visibility, torch.Tensor | None]:
    if mask is not None:
        kind = trace.kinds.get(id(mask), (mask, None))[1]
        if kind is LOOKS_AHEAD and trace.buffer is not None:
            raise NotCausalError
        return (kind, None) if kind and kind is not LOOKS_AHEAD else (Visibility(causal=False), mask)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return Visibility(causal=bool(causal)), None


def _mask(
    *, mask_function: Callable[..., Any], attention_mask: torch.Tensor | None = None, **others: Any
) -> Any:
    """The mask as a bool tensor [batch, 1, sequence, keys]; its kind is noted where it has one.

    A tensor whose kind is known is not read by `_attention`, so nothing of it is left in the graph.
    """
    trace = _CURRENT.get()
    is_of_source = trace.has_source and mask_function is bidirectional_mask_function
    if not trace.has_tokens or is_of_source:
        return _mask_of_tensor(mask_function, attention_mask, others["q_length"], others["kv_length"])
    keys = trace.buffer or others["kv_length"]
    query = trace.places[:, None, :, None]
    key = (torch.arange(keys) if trace.buffer else trace.index)[None, None, None, :]
    rows = torch.arange(query.shape[0])[:, None, None, None]
    kind = _recognise(mask_function, trace.buffer or 4096)
    named = kind is not None and kind is not LOOKS_AHEAD
    seen = kind.visible(query, key) if kind and named else _broadcast(mask_function, rows, query, key)
    if not named and trace.buffer is None and attention_mask is not None:
        seen = seen & (trace.index[None, :] < trace.length[:, None])[:, None, None, :]
    if kind:
        trace.kinds[id(seen)] = (seen, kind)
    return seen


def _mask_of_tensor(
    mask_function: Callable[..., Any], attention_mask: torch.Tensor | None, queries: int, keys: int
) -> torch.Tensor | None:
    """The mask of a model that takes no tokens: bool [batch, 1, queries, keys]; None where it hides nothing."""
    hides = attention_mask is not None and not (is_plain(attention_mask) and bool(attention_mask.all()))
    padding = (
        attention_mask[:, None, None, :].to(torch.bool) if hides and attention_mask is not None else None
    )
    if mask_function is bidirectional_mask_function:
        return padding
    query, key = torch.arange(queries)[None, None, :, None], torch.arange(keys)[None, None, None, :]
    seen = _broadcast(mask_function, torch.zeros(1, 1, 1, 1, dtype=torch.int64), query, key)
    return seen if padding is None else seen & padding


def _additive_mask(*, dtype: torch.dtype = torch.float32, **others: Any) -> torch.Tensor | None:
    """The same for models that add the mask to their scores."""
    seen = _mask(**others)
    trace = _CURRENT.get()
    if seen is None:
        return None
    if seen.shape[2] == 1:  # attentions of their own may insist on all rows
        seen = seen.expand(-1, -1, others["q_length"], -1)
    if trace.buffer is not None and trace.kinds.get(id(seen), (seen, None))[1] is LOOKS_AHEAD:
        raise NotCausalError
    return torch.where(
        seen, torch.zeros((), dtype=dtype), torch.full((), torch.finfo(dtype).min, dtype=dtype)
    )


def _broadcast(mask_function: Callable[..., Any], rows: Any, query: Any, key: Any) -> torch.Tensor:
    seen = mask_function(rows, torch.zeros(1, 1, 1, 1, dtype=torch.int64), query, key)
    if isinstance(seen, bool):
        return torch.full((1, 1, query.shape[2], key.shape[-1]), seen)
    broadcast: torch.Tensor = seen.expand(query.shape[0], 1, query.shape[2], key.shape[-1])
    return broadcast


def _recognise(mask_function: Callable[..., Any], size: int) -> Visibility | None:
    """The kind of a mask, found by asking it: exact on the probed rows, None if it is of no named kind.

    The last row of the mask over `size` positions gives the only window and the only chunks that it can have; each
    hypothesis is then compared with `PROBED_QUERIES` whole rows; O(rows × size).
    """
    with _disable_current_modes():
        keys = torch.arange(size)[None, :]
        queries = _probed(size)[:, None]
        try:
            seen = _broadcast(
                mask_function, torch.zeros(1, 1, 1, 1, dtype=torch.int64), queries[None, None], keys
            )[0, 0]
        except Exception:  # it asks for tensors of the trace, which have no values
            return None
        if isinstance(seen, FakeTensor) or not bool(seen[-1].any()):
            return None
        if bool((seen & (keys > queries)).any()):
            return LOOKS_AHEAD
        first = int(seen[-1].to(torch.int64).argmax())
        return next(
            (k for k in _hypotheses(first, size) if bool((k.visible(queries, keys) == seen).all())), None
        )


def _probed(size: int) -> torch.Tensor:
    """Rows spread over all positions, the first few and the last."""
    spread = torch.arange(0, size, max(1, size // PROBED_QUERIES))
    rows = {*spread.tolist(), *range(min(size, 8)), size - 1}
    return torch.tensor(sorted(rows))


def _hypotheses(first: int, size: int) -> Iterator[Visibility]:
    """Every kind whose last row of `size` begins at key `first`."""
    yield Visibility()
    yield Visibility(window=size - first)
    if first:
        yield from (Visibility(chunk=c) for c in range(size - first, first + 1) if first % c == 0)


def remember(name: str, marks: torch.Tensor) -> torch.Tensor:
    """How many marks the tokens of earlier steps had, i64[batch]; `marks` [batch, sequence] of this one are kept.

    They are rows of a state like those of a cache, so that a sequence may go on from any of its steps.
    """
    trace = _CURRENT.get()
    assert trace.buffer is not None
    rows = marks.to(torch.float32)[:, None, :, None]
    kept = torch.onnx.ops.symbolic(
        symbolic_name(UPDATE_STATE),
        [rows, trace.position],
        {"state": f"cache.{name}"},
        dtype=rows.dtype,
        shape=(rows.shape[0], 1, trace.buffer, 1),
        version=1,
    )
    is_earlier = torch.arange(trace.buffer)[None, :] < trace.position[:, None]
    return torch.where(is_earlier, kept[:, 0, :, 0], 0.0).sum(1).to(torch.int64)


class TraceLayer(CacheLayerMixin):
    """A cache layer whose updates become `partc.UpdateState` nodes."""

    is_sliding = False
    is_compileable = False

    def __init__(self, layer: int, past: torch.Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.past = past
        self.is_initialized = True

    def __getattr__(self, name: str) -> Any:
        """Nothing else: code that looks whether there is something goes on, code that needs it does not."""
        raise UnknownCacheError(name)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing: the buffer belongs to the runner."""

    def get_seq_length(self) -> Any:
        """Valid rows, as the size of an input: a model that asks makes its graph depend on it."""
        return self.past.shape[0]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys of a mask: the whole buffer."""
        return self.get_max_length(), 0

    def get_max_length(self) -> int:
        """Rows of the buffer."""
        buffer = _CURRENT.get().buffer
        assert buffer is not None
        return buffer

    get_max_cache_shape = get_max_length
    """Its name in earlier versions of transformers."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new rows; returns both whole buffers."""
        _CURRENT.get().updates += 1
        return self._write("key", key_states), self._write("value", value_states)

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        """Write new keys [batch, sequence, d] of an indexer, which chooses what attention sees; returns all of them."""
        return self._write("indexer", indexer_key_states[:, None])[:, 0]

    def _write(self, kind: str, new: torch.Tensor) -> torch.Tensor:
        trace = _CURRENT.get()
        batch, heads, _, width = new.shape
        return torch.onnx.ops.symbolic(
            symbolic_name(UPDATE_STATE),
            [new, trace.position],
            {"state": f"cache.{self.layer}.{kind}"},
            dtype=new.dtype,
            shape=(batch, heads, self.get_max_length(), width),
            version=1,
        )


class TraceCache(Cache):
    """One `TraceLayer` for every layer that a model may ask for; it denies that it has states of the other kind."""

    def __init__(self, layers: int, past: torch.Tensor) -> None:
        super().__init__(layers=[TraceLayer(index, past) for index in range(layers)])

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        """No: see `partc.frontend.trace.recurrent`."""
        return False

    def is_recording_past(self, layer_idx: int) -> bool:
        """No."""
        return False

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """None."""

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """None; but the recurrences that follow are those of this layer."""
        _CURRENT.get().recurrence.begin_scan(layer_idx)

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """The rows [batch, channels, sequence] as they are, for the convolution that follows."""
        return _CURRENT.get().recurrence.begin_convolution(conv_states, layer_idx, state_idx)

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """The state as it is: the operator that made it has kept it."""
        _CURRENT.get().recurrence.end_scan(layer_idx)
        return recurrent_states
