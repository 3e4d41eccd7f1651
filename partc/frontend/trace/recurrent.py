"""States that a step rewrites as a whole, as transformers models see them while they are traced.

Models with convolutions or linear attention ask their cache for a state, and branch: without one they compute a prompt,
with one and a single token a step. Our cache always answers that it has none, so that one program comes out for any
number of tokens; the functions that a prompt goes through are replaced by operators which have the state
(`partc.CausalConv`, `partc.LinearAttention`). transformers has no registry of these functions: they are found by name
in the modules of a model's code. A model whose code calls others is refused, since its trace would forget its past.

Older models ask no cache. Their convolutions are `torch.nn.Conv1d` that fill up in front, and `ZeroPad2d` that shift
rows by one: these become `partc.CausalConv` as well. They are traced as if they had no state, and so are models with a
class of cache of their own; a module in which these write out their linear attention is known by what it holds.

Where a model limits the time steps of Mamba 2 in prompts but not in single tokens, the single token is followed.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache

from partc.frontend.trace.own_operators import symbolic_name
from partc.ir.operators import CAUSAL_CONV, LINEAR_ATTENTION
from partc.ir.operators.operator import Operator


class StateLostError(Exception):
    """A model's code computes with a state in a function that is not replaced."""

    def __init__(self, what: str) -> None:
        super().__init__(f"its code computes {what} in a way that partc does not know")


@dataclass
class Recurrence:
    """The convolutions and recurrences that a trace has met so far."""

    length: torch.Tensor
    """i64[batch]: valid new tokens."""
    layer: int = 0
    """The layer that asked last for its recurrent state."""
    scans: int = 0
    """Recurrences of that layer since: some models compute one a head."""
    unfinished: tuple[torch.Tensor, str] | None = None
    """Rows that a model told its cache and has not convolved yet, and the name of their state."""
    states: set[str] = field(default_factory=set)
    """Names of all states."""

    @property
    def next_layer(self) -> int:
        """A number for a recurrence that does not tell its layer."""
        return len(self.states)

    def begin_convolution(self, rows: torch.Tensor, layer: int, number: int) -> torch.Tensor:
        """Take `rows` [batch, channels, sequence] for the convolution that follows; they come back as they are."""
        self.check()
        name = f"cache.{layer}.convolution"
        self.unfinished = rows, f"{name}.{number}" if number else name
        return rows

    def begin_scan(self, layer: int) -> None:
        """The recurrences that follow are those of `layer`."""
        self.layer, self.scans = layer, 0

    def end_scan(self, layer: int) -> None:
        """The layer is through with its recurrences.

        Raises:
            StateLostError: there were none.
        """
        if self.layer != layer or not self.scans:
            raise StateLostError("a recurrent state")

    def check(self) -> None:
        """Make sure that all rows that a cache was told of were convolved.

        Raises:
            StateLostError: they were not.
        """
        if self.unfinished is not None:
            raise StateLostError("a convolution")

    def convolve(self, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The convolution of the unfinished rows, [batch, channels, sequence]; `weight` is [channels, kernel]."""
        assert self.unfinished is not None
        (rows, name), self.unfinished = self.unfinished, None
        return self.filter(name, rows.to(weight.dtype).transpose(1, 2), weight, bias).transpose(1, 2)

    def filter(
        self, state: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`partc.CausalConv` of rows [batch, sequence, channels] with the state of that name."""
        batch, _, channels = x.shape
        last = (batch, weight.shape[-1] - 1, channels)
        out, _ = self._stateful(CAUSAL_CONV, state, [x, weight, self.length, bias], {}, (x, last))
        return out

    def shift(self, state: str, rows: torch.Tensor) -> torch.Tensor:
        """Rows [batch, sequence, channels], each in the place of the next one."""
        before = torch.tensor([1.0, 0.0], dtype=rows.dtype).expand(rows.shape[-1], 2)
        return self.filter(state, rows, before)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        decay: torch.Tensor,
        beta: torch.Tensor | None = None,
        scale: float = 1.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`partc.LinearAttention` with the next state of the layer: [batch, sequence, heads, v], and that state."""
        name = f"cache.{self.layer}.recurrent" + (f".{self.scans}" if self.scans else "")
        self.scans += 1
        batch, _, heads, width = value.shape
        inputs = [each.float() for each in (query, key, value, decay)]
        last = (batch, heads, key.shape[-1], width)
        rate = None if beta is None else beta.float()
        operands = [*inputs, self.length, rate]
        return self._stateful(LINEAR_ATTENTION, name, operands, {"scale": scale}, (inputs[2], last))

    def _stateful(
        self,
        operator: Operator,
        state: str,
        inputs: list[torch.Tensor | None],
        attributes: Mapping[str, float],
        results: tuple[torch.Tensor, tuple[Any, ...]],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A node with a state; `results` are a tensor like its first result, and the sizes of the state."""
        self.states.add(state)
        like, last = results
        while inputs[-1] is None:
            inputs.pop()
        out, new = torch.onnx.ops.symbolic_multi_out(
            symbolic_name(operator),
            inputs,
            {**attributes, "state": state},
            dtypes=[like.dtype, like.dtype],
            shapes=[tuple(like.shape), last],
            version=1,
        )
        return out, new


_CURRENT: ContextVar[Recurrence] = ContextVar("partc_recurrence")


@contextlib.contextmanager
def recurrences(network: torch.nn.Module, recurrence: Recurrence | None) -> Iterator[None]:
    """Let the replaced functions of the model's code work for `recurrence`; None: they stay as they are.

    Raises:
        StateLostError: at the end, where a convolution was begun that no known function computed.
    """
    if recurrence is None:
        yield
        return
    token = _CURRENT.set(recurrence)
    places: list[Any] = [*_code_of(network), *{type(module) for module in network.modules()}]
    before = [
        (place, name, vars(place)[name]) for place in places for name in REPLACED if name in vars(place)
    ]
    for place, name, function in before:
        setattr(place, name, _replacement(REPLACED[name], function))
    filters = {module: ours for name, module in network.named_modules() if (ours := _filter_of(name, module))}
    for module, forward in filters.items():
        module.forward = forward
    try:
        yield
        recurrence.check()
    finally:
        for module in filters:
            del module.forward
        for place, name, function in before:
            setattr(place, name, function)
        _CURRENT.reset(token)


def _code_of(network: torch.nn.Module) -> list[ModuleType]:
    """The modules of transformers in which a model's code stands."""
    found = {sys.modules[type(module).__module__] for module in network.modules()}
    return [module for module in found if module.__name__.startswith("transformers.models.")]


def has_own_cache(network: torch.nn.Module) -> bool:
    """Whether a model's code has a class of cache of its own, and takes no other."""
    return any(
        isinstance(each, type) and issubclass(each, Cache) and each.__module__ == code.__name__
        for code in _code_of(network)
        for each in vars(code).values()
    )


def _filter_of(name: str, module: torch.nn.Module) -> Callable[..., Any] | None:
    """The stand-in for a module that sees earlier rows without a cache of ours; None: it is no such module."""
    if {*vars(module), *module._modules, *module._buffers} >= _LIGHTNING:
        return lambda *arguments, **options: _lightning(_CURRENT.get(), module, *arguments, **options)
    match module:
        case torch.nn.ZeroPad2d(padding=(0, 0, 1, -1)):
            return lambda rows: _CURRENT.get().shift(f"{name}.rows", rows)
        case torch.nn.Conv1d(stride=(1,), dilation=(1,), padding_mode="zeros") if _is_causal(module):
            weight, bias = module.weight, module.bias

            def convolve(rows: torch.Tensor) -> torch.Tensor:
                found = _CURRENT.get().filter(f"{name}.rows", rows.transpose(1, 2), weight.squeeze(1), bias)
                return found.transpose(1, 2)

            return convolve
    return None


def _is_causal(module: torch.nn.Conv1d) -> bool:
    """Whether it has weights for each channel, and fills up by all rows but one: what is too much is cut off behind."""
    is_by_channel = module.groups == module.in_channels == module.out_channels
    return is_by_channel and module.padding == (module.kernel_size[0] - 1,) and module.kernel_size[0] > 1


def _replacement(
    ours: Callable[[Recurrence, dict[str, Any]], Any], theirs: Callable[..., Any]
) -> Callable[..., Any]:
    signature = inspect.signature(theirs)

    def replaced(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        return ours(_CURRENT.get(), bound.arguments)

    return replaced


def _convolution(recurrence: Recurrence, given: dict[str, Any]) -> torch.Tensor:
    """`causal_conv1d_fn`: rows [batch, channels, sequence]."""
    rows, activation = given["hidden_states"], given["activation"]
    if recurrence.unfinished is None or recurrence.unfinished[0] is not rows:
        raise StateLostError("a convolution")
    out = recurrence.convolve(given["weight"], given["bias"]).to(rows.dtype)
    return out if activation is None else ACT2FN[activation](out)


def _selective_scan(recurrence: Recurrence, given: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """`mamba_selective_scan` (Mamba 1): every channel is a head with one value, and all share a key and a query.

    hidden_states, dt and z are [batch, channels, sequence], A is [channels, n], B and C are [batch, n, sequence].
    """
    x, dt = given["hidden_states"], given["dt"]
    if given["delta_bias"] is not None:
        dt = dt + given["delta_bias"].to(dt.dtype)[..., None]
    if given["delta_softplus"]:
        dt = functional.softplus(dt)
    query, key = (given[name].transpose(1, 2)[:, :, None] for name in ("C", "B"))
    step = dt.transpose(1, 2)[..., None]
    value = step * x.transpose(1, 2)[..., None].float()
    out, last = recurrence.attend(query, key, value, step * given["A"])
    out = out.squeeze(-1).transpose(1, 2).to(x.dtype)
    if given["D"] is not None:
        out = out + x * given["D"][None, :, None]
    if given["z"] is not None:
        out = out * functional.silu(given["z"])
    return out, last


def _chunk_scan(recurrence: Recurrence, given: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """`mamba2_chunk_scan` (Mamba 2, SSD).

    hidden_states is [batch, sequence, heads, v], dt [batch, sequence, heads], B and C [batch, sequence, groups, k].
    """
    x, dt = given["hidden_states"].float(), given["dt"]
    if given["dt_bias"] is not None:
        dt = dt + given["dt_bias"].to(dt.dtype)
    if given["dt_softplus"]:
        dt = functional.softplus(dt)
    dt = dt.float()[..., None]
    out, last = recurrence.attend(given["C"], given["B"], x * dt, dt * given["A"].float()[:, None])
    if given["D"] is not None:
        out = out + x * given["D"][:, None]
    return out.to(given["hidden_states"].dtype), last


def _delta_rule(recurrence: Recurrence, given: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The gated delta rule, with a decay a head or a key channel.

    query and key are [batch, sequence, groups, k], value [batch, sequence, heads, v], beta [batch, sequence, heads],
    g [batch, sequence, heads] or [batch, sequence, heads, k].
    """
    query, key, decay = given["query"].float(), given["key"].float(), given["g"]
    if given["use_qk_l2norm_in_kernel"]:
        query, key = (each * torch.rsqrt((each * each).sum(-1, keepdim=True) + 1e-6) for each in (query, key))
    if decay.ndim == 3:
        decay = decay[..., None]
    out, last = recurrence.attend(query, key, given["value"], decay, given["beta"], key.shape[-1] ** -0.5)
    return out.to(given["query"].dtype), last


def _wkv(recurrence: Recurrence, given: dict[str, Any]) -> tuple[torch.Tensor, None]:
    """`rwkv_linear_attention` (RWKV 4): a weighted mean of all values, where the present one has a weight of its own.

    key and value are [batch, sequence, channels], time_decay and time_first [channels]. Every channel is a head that
    sums value · eᵏ and eᵏ, and is read before the present row comes in: the sums are those of rows shifted by one.
    Theirs subtracts the largest k so far from all; ours needs k below 88, the logarithm of what float32 can hold.
    """
    key, value = given["key"].float(), given["value"].float()
    weight = torch.exp(key)[..., None]
    rows = torch.cat([weight * value[..., None], weight], -1)
    before = recurrence.shift(f"cache.{recurrence.next_layer}.shifted", rows.flatten(2)).reshape(rows.shape)
    recurrence.begin_scan(recurrence.next_layer)
    one = torch.ones((*key.shape[:2], 1, 1))
    decay = -torch.exp(given["time_decay"].float())[:, None].expand(*key.shape, 1)
    sums, _ = recurrence.attend(one, one, before, decay)
    sums = sums + rows * torch.exp(given["time_first"].float())[:, None]
    return (sums[..., 0] / sums[..., 1]).to(given["key"].dtype), None


def _gated_sum(recurrence: Recurrence, given: dict[str, Any]) -> tuple[torch.Tensor, None]:
    """`_rnn_scan` (RG-LRU): every channel is a head with one number; hidden_states is [batch, sequence, channels]."""
    rows, gate = given["hidden_states"], given["recurrent_gate"] * ~given["reset"]
    recurrence.begin_scan(recurrence.next_layer)
    one = torch.ones((*rows.shape[:2], 1, 1))
    out, _ = recurrence.attend(one, one, rows[..., None], torch.log(gate.float())[..., None])
    return out.squeeze(-1).to(rows.dtype), None


_LIGHTNING = {"qkv_proj", "slope_rate", "norm", "output_gate", "out_proj", "act_fn", "layer_idx", "head_dim"}
"""Members of a module of lightning attention."""


def _lightning(
    recurrence: Recurrence, module: Any, hidden_states: torch.Tensor, *others: Any, **options: Any
) -> tuple[torch.Tensor, None]:
    """A module of lightning attention: every head's state decays by a constant, `slope_rate` [heads, 1, 1].

    hidden_states is [batch, sequence, width].
    """
    batch, sequence, _ = hidden_states.shape
    heads = module.slope_rate.shape[0]
    rows = module.act_fn(module.qkv_proj(hidden_states)).reshape(batch, sequence, heads, -1)
    query, key, value = rows.split(module.head_dim, -1)
    decay = -module.slope_rate.float().reshape(heads, 1).expand(batch, sequence, heads, 1)
    recurrence.begin_scan(module.layer_idx)
    out, _ = recurrence.attend(query, key, value, decay)
    normal = module.norm(out.to(hidden_states.dtype).flatten(2))
    return module.out_proj(torch.sigmoid(module.output_gate(hidden_states)) * normal), None


REPLACED: Mapping[str, Callable[[Recurrence, dict[str, Any]], Any]] = {
    "causal_conv1d_fn": _convolution,
    "mamba_selective_scan": _selective_scan,
    "mamba2_chunk_scan": _chunk_scan,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "rwkv_linear_attention": _wkv,
    "_rnn_scan": _gated_sum,
}
"""Function of transformers' modules, or method of their classes → ours.

The new states are for the cache alone, which does not look at them.
"""
