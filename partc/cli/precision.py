"""The line about the precision of weights below a plan: apart from the tables, which need nothing of the compiler."""

from __future__ import annotations

from partc.config.units import format_bytes
from partc.ir.graph import Module, Weight
from partc.ir.weight_formats import QUANTIZE_STEPS
from partc.ir.weights import STORED_STEPS, has_step


def precision_line(module: Module) -> str | None:
    """`weights: int4, 0.81 MiB; 51 KiB keep theirs`, with the largest of these where one is a matrix; None: no news."""
    if module.info.quantize is None:
        return None
    weights = module.graph.weights()
    kept = [weight for weight in weights if not _is_quantized(weight)]
    made = sum(weight.bytes({}) for weight in weights if _is_quantized(weight))
    line = f"weights: {module.info.quantize.text}, {format_bytes(made)}"
    if not kept:
        return line
    largest = max(kept, key=lambda weight: weight.bytes({}))
    example = f", {_type_of(largest)} {largest.name} the largest" if len(largest.shape or ()) > 1 else ""
    return f"{line}; {format_bytes(sum(weight.bytes({}) for weight in kept))} keep theirs{example}"


def _is_quantized(weight: Weight) -> bool:
    return weight.source is not None and has_step(weight.source, *QUANTIZE_STEPS, *STORED_STEPS)


def _type_of(weight: Weight) -> str:
    return f"{weight.dtype}[{', '.join(str(size) for size in weight.shape or ())}]"
