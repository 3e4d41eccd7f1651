"""The TVM target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partc.bundle.describe import state_spec
from partc.errors import InternalError, UserError
from partc.format.build import EngineSpec, LibraryFunctions, LibraryOptions, Submodule
from partc.format.build_rules import MOST_STEP_TOKENS
from partc.format.kernel_plan import KERNELS_FILE, kernel_plan_text
from partc.ir.graph import Graph, ModelInfo, Node, Part, Weight
from partc.ir.types import HALF
from partc.pipeline.contract import NO_STORE, Artifact, Progress, Target, TensorStore
from targets.tvm.checks import (
    check_forms,
    check_nodes,
    check_not_empty,
    check_operators,
    check_sizes,
    refusal_of,
)
from targets.tvm.layout import packable, packed_shape, packed_source, unify_products
from targets.tvm.loading import load_tvm
from targets.tvm.machine import ARCHITECTURES, PROVIDERS, Machine, features_of_host, machine_of
from targets.tvm.padding import check_padding, check_states
from targets.tvm.panels import lay_out_keys
from targets.tvm.quantized import stored_bytes, write_quantized
from targets.tvm.specialise import Entry, entries_by_graph, entries_of, outputs_of, rows_of_tokens, specialise
from targets.tvm.step_costs import expected_token_costs, has_wide_vnni, step_costs, token_costs
from targets.tvm.toolchain import Toolchain, check_installed, find_toolchain
from targets.tvm.widen import widen
from targets.weights import Placed, write_weights

LIBRARY = "library.so"
"""The code of a processor; that of a GPU is named in `gpu.languages`."""
CHUNKS = (2, 4, 6, 8, 12, 16, 32, 64, *(1 << power for power in range(8, 17)))
"""Prompts go in steps of these sizes (`step_costs`), so that one between two of them takes about its share. More would
add little: 128 rows take about as long as twice 64, and every entry adds to the library."""

WIDE_CHUNKS = (*CHUNKS[:6], 20, 24, *CHUNKS[6:])
"""The same with VNNI of 512 bits, where a row costs less beside the reading of weights, and a step more beside rows."""

GPU_CHUNKS = (4, 16, 64, *(1 << power for power in range(8, 17, 2)))
"""The same of a GPU, where a row of padding costs little, and code for a size takes seconds to compile."""


@dataclass(frozen=True)
class TvmTarget(Target):
    """One shared library a device, compiled ahead of time; weights in safetensors files beside it."""

    name = "tvm"
    providers = PROVIDERS
    libraries = ("apache-tvm",)
    provider: str = "cpu"
    """`cpu`; or a GPU: `cuda` for NVIDIA's, `opencl` for others."""
    threads: int = 0
    """Threads of one call; 0: as many as the device has cores."""
    arch: str = "x86_64"
    """Processor architecture of the device."""
    platform: str = ""
    """A name of `machine.PLATFORMS`; by default Linux on that architecture."""
    features: tuple[str, ...] = ()
    """Processor features beyond the platform's baseline that the code may use."""
    cuda_arch: str = "sm_87"
    """Architecture of the GPU under `provider: cuda`; sm_87 is Jetson Orin."""
    linker: str = ""
    """Command that links the library: a C compiler for the platform, or ld.lld; by default partc looks for one."""
    nvcc: str = ""
    """Command of NVIDIA's compiler; by default partc looks for one."""
    chunks: tuple[int, ...] = CHUNKS
    """Rows of a step, besides 1 and the most, that the library has code for; by default those for the machine."""
    batches: tuple[int, ...] = (1,)
    """Sequences of a step, besides max_batch, that the library has code for."""

    @classmethod
    def serves(cls, arch: str, provider: str) -> bool:
        """See `Target`: processors that there are kernels for."""
        return provider == "cpu" and arch in ARCHITECTURES

    @classmethod
    def host_options(cls) -> Mapping[str, object]:
        """See `Target`."""
        return {"features": features_of_host()}

    @property
    def machine(self) -> Machine:
        """The machine that the code is compiled for; raises ConfigError where the options make none."""
        return machine_of(self.arch, self.platform, self.features, self.provider, self.cuda_arch)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of a step that the library has code for."""
        if self.chunks != CHUNKS:
            return self.chunks
        if self.machine.is_gpu:
            return GPU_CHUNKS
        return WIDE_CHUNKS if has_wide_vnni(self.machine) else CHUNKS

    def check_options(self) -> None:
        """Make sure that the options make a machine and entries.

        Raises:
            ConfigError: they do not; names the option.
        """
        check_sizes("chunks", self.chunks)
        check_sizes("batches", self.batches)
        machine_of(self.arch, self.platform, self.features, self.provider, self.cuda_arch)

    def check(self) -> None:
        """Find TVM, and every tool that a library for this machine takes.

        Raises:
            ConfigError: the options make no machine or no entry, or something is missing.
        """
        self.check_options()
        check_installed()
        find_toolchain(self.machine, self.linker, self.nvcc)

    def refusal(self, node: Node) -> UserError | None:
        """See `Target`: forms of quantised weights."""
        return refusal_of(node)

    def token_costs(self, graph: Graph, info: ModelInfo) -> Mapping[int, float]:
        """See `Target`: the same as `lower` says of the code, by the processor's kind and the weights' formats."""
        rows = [size for size in self._rows([graph], info) if size <= MOST_STEP_TOKENS]
        return expected_token_costs(graph, rows, self.machine)

    def widened(self, dtype: str) -> frozenset[str]:
        """See `Target`: kernels convert weights while they read them, and compute in float32."""
        return frozenset(("activations",)) if dtype in HALF else frozenset()

    def stored_bytes(self, weight: Weight) -> int:
        """See `Target`: quantised matrices lie in panels."""
        return stored_bytes(weight)

    def identity(self) -> object:
        """Options and the versions of the tools that link.

        Raises:
            ConfigError: see `check`.
        """
        return [repr(self), find_toolchain(self.machine, self.linker, self.nvcc).versions()]

    def lower(self, graphs: Sequence[Graph], info: ModelInfo) -> list[Graph]:
        """The graphs as they are: fixed sizes come with the code, in `emit`.

        Raises:
            UserError: there is no code for an operator, a form of it, a type, a size or a state; names the node.
            ConfigError: see `check`.
        """
        self.check()

        known = emitters_for(self.machine)
        entries = entries_of(graphs, info, self.batches, self.sizes)
        for graph in graphs:
            check_nodes(graph)
            check_padding(graph, info)
            check_states(graph)
        ends = [tuple(found[at] for found in entries.values()) for at in (0, -1)]
        for chosen in dict.fromkeys(ends):  # what lies between has the same operators
            static = [_static(graph, info, entry) for graph, entry in zip(graphs, chosen, strict=True)]
            write_quantized(static, bytes_of_x=not self.machine.is_gpu)
            for graph in static:
                check_not_empty(graph)
                check_operators(graph, known)
            check_forms(static)
        return list(graphs)

    def emit(
        self, part: Part, info: ModelInfo, folder: Path, progress: Progress, store: TensorStore = NO_STORE
    ) -> Artifact:
        """Write the code, its plan `kernels.json`, and `weights/<part>.safetensors`.

        Raises:
            ModelError: the checkpoint lacks a tensor, or it has another shape.
        """
        load_tvm()
        import tvm

        from targets.tvm.builder import ModuleBuilder
        from targets.tvm.fuse import fuse_for_processor
        from targets.tvm.gpu.fuse import fuse_for_gpu

        tools = find_toolchain(self.machine, self.linker, self.nvcc)
        entries = entries_by_graph(part, info, self.batches, self.sizes, self._rows(part.graphs, info))
        graphs = {
            graph.name: [_static(graph, info, one) for one in entries[graph.name]] for graph in part.graphs
        }
        every = [graph for static in graphs.values() for graph in static]
        write_quantized(every, bytes_of_x=not self.machine.is_gpu)
        unify_products(every)
        packed = packable(every)
        in_panels = frozenset() if self.machine.is_gpu else lay_out_keys(every)
        fuse = fuse_for_gpu if self.machine.is_gpu else fuse_for_processor
        for graph in every:
            fuse(graph, packed)
        builder = ModuleBuilder(emitters_for(self.machine), packed)
        weights = {name: _weights(static) for name, static in graphs.items()}
        added = []
        for name, static in graphs.items():
            for entry, graph in zip(entries[name], static, strict=True):
                values = {value.name: value for value in graph.values()}
                parameters = [*graph.inputs, *graph.states(), *weights[name]]
                added.append(f"{name}_{entry.suffix}")
                builder.add(added[-1], graph, [values.get(v.name, v) for v in parameters])
        stored = {name: [_stored(weight, packed) for weight in own] for name, own in weights.items()}
        places: dict[Weight, Placed] = {}

        def write() -> None:
            places.update(write_weights(stored, info, folder, progress, store))

        file, peak_bytes = self._build(builder.finish(), added, tools, folder, write)
        functions = {
            name: LibraryFunctions(
                entries=tuple((entry.batch, entry.sequence) for entry in entries[name]),
                weights=tuple(places[weight].entry.name for weight in own),
            )
            for name, own in stored.items()
        }
        has_states = any(graph.states() for graph in part.graphs)
        return Artifact(
            submodules=tuple(
                _submodule(graph, file, [places[w].file for w in stored[graph.name]], in_panels)
                for graph in part.graphs
            ),
            engine=EngineSpec(
                kind="gpu" if self.machine.is_gpu else "plan",
                provider=self.provider,
                threads=self.threads,
                library=LibraryOptions(self.machine.name, tuple(self.machine.needs()), functions),
                chunked_prefill=True if has_states else None,
            ),
            step_costs=step_costs(part.graphs, entries, self.machine),
            token_costs=token_costs(part.graphs, entries, self.machine),
            toolkit={"tvm": tvm.__version__, **tools.versions(), "verified": _verified(self.machine)},
            peak_bytes=peak_bytes,
        )

    @property
    def shares_steps(self) -> bool:
        """Whether its code computes tokens of several requests in one step: on processors it does."""
        return not self.machine.is_gpu

    def _rows(self, graphs: Sequence[Graph], info: ModelInfo) -> tuple[int, ...]:
        """Rows of one token each that the library has code for; a GPU computes them one after the other."""
        kinds = (state.kind for graph in graphs for state in graph.states())
        return () if self.machine.is_gpu else rows_of_tokens(info, kinds)

    def _build(
        self,
        module: Any,
        functions: Sequence[str],
        tools: Toolchain,
        folder: Path,
        meanwhile: Callable[[], object],
    ) -> tuple[str, int]:
        """Write the code and its plan; the name of the file, and the memory for activations, bytes.

        `meanwhile` is called on the way, while other threads compile.
        """
        if self.machine.is_gpu:
            from targets.tvm.gpu.languages import LANGUAGES
            from targets.tvm.gpu.link import build_gpu

            plan, workspace_bytes = build_gpu(module, functions, self.machine, tools, folder), 0
            meanwhile()
            file = LANGUAGES[self.provider].file
        else:
            from targets.tvm.link import build_kernels

            file = LIBRARY
            plan, workspace_bytes = build_kernels(
                module, functions, self.machine, tools, folder / file, meanwhile
            )
        (folder / KERNELS_FILE).write_text(kernel_plan_text(plan))
        return file, plan.arena_bytes + max(1, self.threads) * workspace_bytes


def emitters_for(machine: Machine) -> Mapping[str, Any]:
    """Operator → what writes it for this machine."""
    load_tvm()
    from targets.tvm.operators import OPERATORS

    if machine.is_gpu:
        from targets.tvm.gpu.kernels import gpu_operators

        return {**OPERATORS, **gpu_operators(machine)}
    from targets.tvm.kernels import cpu_operators

    return {**OPERATORS, **cpu_operators(machine)}


def _static(graph: Graph, info: ModelInfo, entry: Entry) -> Graph:
    """The graph of one entry, computed in float32."""
    found = specialise(graph, info, entry)
    widen(found)
    return found


def _weights(graphs: Sequence[Graph]) -> list[Weight]:
    """Every weight that an entry reads, once, in the order of first use."""
    found: dict[str, Weight] = {}
    for weight in (weight for graph in graphs for weight in graph.weights()):
        if found.setdefault(weight.name, weight).source != weight.source:
            raise InternalError(f"%{weight.name} is not the same weight in all entries")
    return list(found.values())


def _stored(weight: Weight, packed: frozenset[str]) -> Weight:
    """The weight as it lies in the file; packed ones have names of their own, beside tables of the same name."""
    if weight.name not in packed:
        return weight
    return Weight(f"{weight.name}.panels", weight.dtype, packed_shape(weight), source=packed_source(weight))


def _verified(machine: Machine) -> str:
    """What was checked when the code was made, for build.json; nothing ran."""
    match machine.provider:
        case "cuda":
            return f"compiled by nvcc for {machine.cuda}; not run when compiled"
        case "opencl":
            return "source that the device compiles; not run when compiled"
        case _:
            return "links; undefined symbols are of libc and libm; not run when compiled"


def _submodule(graph: Graph, file: str, weights: Sequence[str], in_panels: frozenset[str]) -> Submodule:
    """Input and output of a state are one buffer, which the code changes in place."""
    return Submodule(
        name=graph.name,
        file=file,
        weights=tuple(sorted(set(weights))),
        inputs=tuple(value.name for value in graph.inputs),
        outputs=tuple(value.name for value in outputs_of(graph)),
        states=tuple(
            state_spec(state, state.name, "panels" if state.name in in_panels else "plain")
            for state in graph.states()
        ),
    )
