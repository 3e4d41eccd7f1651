"""The precision of a quantised checkpoint: what stays as it is stored, and a word about what does not."""

from __future__ import annotations

from collections.abc import Iterator

from partc.config.model import ModelConfig
from partc.config.units import format_bytes
from partc.ir.graph import Graph, Module
from partc.ir.quantization import AS_STORED, Quantization
from partc.ir.stored_integers import has_stored_integers, is_stored
from partc.ir.weights import Join, Leaf, Step, WeightExpr

_FLOAT8, _BOOKS = "float8", {"e2m1": "MXFP4", "nf4": "NF4", "fp4": "FP4"}


def precision_of(config: ModelConfig, graph: Graph) -> Quantization | None:
    """What `quantize` of model.yaml asks for; where nobody writes it, integers that a format holds stay as they are."""
    if config.quantize is None and config.keep_stored and has_stored_integers(graph):
        return AS_STORED
    return config.quantize


def notes_on_formats(module: Module) -> list[str]:
    """A remark where matrices are stored in formats that become floats, which take more memory than the checkpoint."""
    wanted = module.info.quantize
    if wanted not in (None, AS_STORED) or (wanted is None and has_stored_integers(module.graph)):
        return []  # in the second case somebody wrote `quantize: none`
    names: set[str] = set()
    count = size = 0
    tables = {node.inputs[0] for node in module.graph.nodes if node.op == "Gather"}
    for weight in module.graph.weights():
        kept = is_stored(weight, offsets=weight not in tables)
        found = set() if weight.source is None or kept else set(_formats(weight.source))
        if found:
            names |= found
            count += 1
            size += weight.bytes({})
    if not count:
        return []
    matrices = "1 matrix is" if count == 1 else f"{count} matrices are"
    return [
        f"{matrices} stored as {' and '.join(sorted(names))}, of which partc makes {module.info.dtype} "
        f"({format_bytes(size)}); `quantize: {{weights: stored, otherwise: int8}}` in model.yaml rounds them anew"
    ]


def _formats(source: WeightExpr) -> Iterator[str]:
    """The formats of what a weight is made of."""
    match source:
        case Step(op="decode", arguments=(str(name),)):
            yield name
        case Step(op="bits", arguments=(int(width),)):
            yield f"{width} bits"
        case Step(op="codes", arguments=(str(book),)):
            yield _BOOKS[book]
        case Step(op="cast", arguments=("i8",), source=Leaf()):
            yield "8 bits"
        case Step(op="float8", arguments=("e4m3" | "e5m2",)):
            yield _FLOAT8
        case Step(source=inner):
            yield from _formats(inner)
        case Join(op="scaled" | "take" | "lora" | "dora", parts=(data, *_)):
            yield from _formats(data)
        case Join(parts=parts):
            for part in parts:
                yield from _formats(part)
        case _:
            return
