"""The onnxruntime target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from partc.bundle.describe import state_spec
from partc.errors import UserError
from partc.format.build import EngineSpec, Submodule
from partc.ir.edit import drop_dead
from partc.ir.effects import updated_states
from partc.ir.graph import Constant, Graph, ModelInfo, Node, Part, Value, Weight
from partc.ir.operators import (
    ATTENTION,
    CAUSAL_CONV,
    LINEAR_ATTENTION,
    QUANTIZE_ROWS,
    QUANTIZED_ATTENTION,
    QUANTIZED_MATMUL,
    UPDATE_STATE,
)
from partc.ir.operators.quantized import bits_of, block_of
from partc.ir.types import HALF
from partc.ir.weight_formats import by_format
from partc.pipeline.contract import NO_STORE, Artifact, Progress, Target, TensorStore
from targets.offsets import lower_offsets
from targets.ort.export import outputs_of, write_onnx
from targets.ort.fusions import FUSIONS, GROUPED_ATTENTION, check_names, fuse_lowered
from targets.ort.kernels import check_kernels
from targets.ort.layout import merge_layout
from targets.ort.lower_attention import lower_attention
from targets.ort.lower_quantized import (
    check_accuracy_level,
    check_int8_products,
    may_take_blocks,
    quantized_lowerings,
)
from targets.ort.lower_recurrent import lower_causal_conv, lower_linear_attention
from targets.ort.lower_swish import lower_swish
from targets.ort.lower_update_state import lower_update_state
from targets.ort.processor import check_features, features_of_host, has_exact_products
from targets.ort.providers import PROVIDERS, find_provider
from targets.ort.share_transposed import share_transposed
from targets.rewrite import Lowering, Rewriter, clone, rewrite
from targets.weights import Placed, write_weights

LOWERINGS: Mapping[str, Lowering] = {
    UPDATE_STATE.name: lower_update_state,
    ATTENTION.name: lower_attention,
    CAUSAL_CONV.name: lower_causal_conv,
    LINEAR_ATTENTION.name: lower_linear_attention,
    "Swish": lower_swish,
}
"""Operator → what writes it in operators that onnxruntime has; the others stay as they are."""


@dataclass(frozen=True)
class OrtTarget(Target):
    """ONNX graphs for onnxruntime, weights in safetensors files."""

    name = "ort"
    providers = tuple(PROVIDERS)
    libraries = ("onnxruntime",)
    fusions = tuple(FUSIONS)
    provider: str = "cpu"
    """Execution provider, a name of `targets.ort.providers.PROVIDERS`."""
    threads: int = 0
    """Threads of one call; 0 leaves it to onnxruntime."""
    accuracy_level: int = 4
    """The precision in which MatMulNBits computes (`targets.ort.lower_quantized`): 4 is int8, the fastest."""
    arch: str = ""
    """Processor architecture of the device, `aarch64` for instance; empty: not known."""
    features: tuple[str, ...] = ()
    """Features of the processor, of `targets.ort.processor.FEATURES`; others do not matter here."""
    int8_products: str = "auto"
    """The way of computing products with 8-bit weights (`targets.ort.lower_quantized.INT8_PRODUCTS`); `auto`: by the
    processor."""
    disable: tuple[str, ...] = ()
    """Names of `targets.ort.fusions.FUSIONS` to leave out."""

    def check_options(self) -> None:
        """Make sure that the provider, the fusions to leave out and the accuracy level exist.

        Raises:
            ConfigError: the target has no such provider.
            UserError: there is no such fusion, accuracy level or kind of products.
        """
        find_provider(self.provider)
        check_accuracy_level(self.accuracy_level)
        check_int8_products(self.int8_products)
        check_features(self.features)
        check_names(self.disable, "options.disable")

    @classmethod
    def host_options(cls) -> Mapping[str, object]:
        """See `Target`."""
        found = features_of_host()
        return {"features": found} if found else {}

    @property
    def products(self) -> str:
        """The way of computing products with 8-bit weights that is taken."""
        if self.int8_products != "auto":
            return self.int8_products
        return "rows" if has_exact_products(self.arch, self.features) else "narrow-rows"

    def without(self, fusions: Collection[str]) -> OrtTarget:
        """See `Target`."""
        own = [name for name in fusions if name in FUSIONS]
        return replace(self, disable=(*self.disable, *own)) if own else self

    def refusal(self, node: Node) -> UserError | None:
        """See `Target`: caches of 8 bits, and products of integers on a GPU, which has no fast ones."""
        if (refusal := _refusal_of_cache(node)) is not None:
            return refusal
        provider = PROVIDERS.get(self.provider)
        is_integer = node.op == QUANTIZED_MATMUL.name and by_format(
            bits_of(node), block_of(node), int4=False, int8=True, int8_blocks=False
        )
        if provider is None or not provider.is_gpu or not is_integer:
            return None
        if may_take_blocks(node, self.products):
            return None
        return UserError(
            f"the provider {self.provider} has no kernel for {node.op} with 8 bits",
            where=node.place,
            hint="write `quantize: int4` or none in model.yaml, or `provider: cpu` for this device",
        )

    def widened(self, dtype: str) -> frozenset[str]:
        """See `Target`: the processor's provider casts weights when they are loaded, and computes in float32."""
        provider = PROVIDERS.get(self.provider)
        on_processor = dtype in HALF and provider is not None and not provider.is_gpu
        return frozenset(("weights", "activations")) if on_processor else frozenset()

    def lower(self, graphs: Sequence[Graph], info: ModelInfo) -> list[Graph]:
        """The graphs in operators of ONNX and com.microsoft; those given stay as they are.

        Raises:
            UserError: onnxruntime has no kernel for a node, or there is no such provider or fusion.
        """
        self.check_options()
        for node in (node for graph in graphs for node in graph.nodes):
            if (refusal := _refusal_of_cache(node)) is not None:
                raise refusal
        provider = find_provider(self.provider)
        wanted = FUSIONS.keys() - {*self.disable} - provider.slow
        lowered = [clone(graph) for graph in graphs]
        for graph in lowered:
            if GROUPED_ATTENTION in wanted and info.dtype in provider.attention:
                FUSIONS[GROUPED_ATTENTION](graph)
            rewrite(graph, {QUANTIZED_MATMUL.name: lower_offsets})
            rewrite(graph, {**LOWERINGS, **quantized_lowerings(self.accuracy_level, self.products)})
        share_transposed(lowered)
        for graph in lowered:
            _copy_leaf_outputs(graph)
            merge_layout(graph)
            drop_dead(graph)
            fuse_lowered(graph, wanted)
            check_kernels(graph, provider.is_gpu)
        return lowered

    def emit(
        self, part: Part, info: ModelInfo, folder: Path, progress: Progress, store: TensorStore = NO_STORE
    ) -> Artifact:
        """Write `<graph>.onnx` and `weights/<graph>.safetensors` for every graph.

        Raises:
            ModelError: the checkpoint lacks a tensor, or it has another shape.
        """
        import onnxruntime

        places = write_weights(
            {graph.name: graph.weights() for graph in part.graphs}, info, folder, progress, store
        )
        for graph in part.graphs:
            write_onnx(graph, places, folder / f"{graph.name}.onnx")
        provider = find_provider(self.provider)
        has_states = any(graph.states() for graph in part.graphs)
        can = not any(_needs_single_row_steps(graph, info) for graph in part.graphs)
        return Artifact(
            submodules=tuple(_submodule(graph, places) for graph in part.graphs),
            engine=EngineSpec(
                kind="ort",
                provider=self.provider,
                threads=self.threads,
                options=dict(provider.options),
                chunked_prefill=can if has_states else None,
            ),
            toolkit={"onnxruntime": onnxruntime.__version__, "verified": provider.verified},
            prompt_chunk_alone=provider.prompt_chunk,
        )


def _refusal_of_cache(node: Node) -> UserError | None:
    """Why onnxruntime cannot hold a cache in 8 bits; None where the node has nothing of one."""
    if node.op not in (QUANTIZE_ROWS.name, QUANTIZED_ATTENTION.name):
        return None
    return UserError(
        f"the ort target has no code for {node.op}",
        where=node.place,
        hint="use `target: tvm` for this device, or remove `cache: int8` from `quantize` in model.yaml",
    )


def _copy_leaf_outputs(graph: Graph) -> None:
    """Let a node make each output that is a weight or a constant: engines give it a buffer."""
    r = Rewriter(graph)
    for place, value in enumerate(graph.outputs):
        if isinstance(value, Weight | Constant):
            twin = r.once(value, lambda value=value: Value(value.name, value.dtype, value.shape))  # type: ignore[misc]
            if twin.producer is None:
                value.name = r.name(f"{value.name}.value")
                graph.nodes.append(r.emit("Identity", [value], [twin]))
            graph.outputs[place] = twin


def _needs_single_row_steps(graph: Graph, info: ModelInfo) -> bool:
    """Whether steps behind the first may have one row only: GroupQueryAttention with batches."""
    return info.max_batch > 1 and any(node.op == "com.microsoft.GroupQueryAttention" for node in graph.nodes)


def _submodule(graph: Graph, places: Mapping[Weight, Placed]) -> Submodule:
    return Submodule(
        name=graph.name,
        file=f"{graph.name}.onnx",
        weights=tuple(sorted({places[weight].file for weight in graph.weights()})),
        inputs=tuple(value.name for value in graph.inputs),
        outputs=tuple(value.name for value in outputs_of(graph)),
        states=tuple(state_spec(state, output.name) for state, output in updated_states(graph).items()),
    )
