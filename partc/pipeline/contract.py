"""The contracts of passes and targets; the instances live in `passes/` and `targets/`.

A pass is a frozen dataclass: its fields are its options (ints, floats, bools, texts), with units in their names.
`apply` changes the module and says truthfully whether it did. What it needs and what it leaves behind are stages of
`partc.ir.verify`; the manager checks both, so a broken contract names the side that must be mended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar

from partc.errors import UserError
from partc.format.build import EngineSpec, Submodule
from partc.ir.graph import Graph, ModelInfo, Module, Node, Part, Weight

Progress = Callable[[str, int, int], None]
"""Called as (what, done, total) during long work; total in bytes where `what` begins with "write ", else in items."""


def no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Context:
    """The surroundings of every pass; nothing in here may change what a pass computes."""

    progress: Progress = field(default=no_progress)


@dataclass(frozen=True)
class Pass(ABC):
    """One step of the pipeline. `name` is kebab-case, verb-object, and equals the file's name."""

    name: ClassVar[str]
    requires: ClassVar[str | None] = None
    """Stage that must hold before (`partc.ir.verify`), None for any text that parses."""
    ensures: ClassVar[str | None] = None
    """Stage that holds afterwards."""

    @classmethod
    def fusions(cls) -> tuple[str, ...]:
        """Names of the fusions that the option `disable` can leave out; passes without that option have none."""
        return ()

    @abstractmethod
    def apply(self, module: Module, context: Context) -> bool:
        """Change `module`; True if anything changed."""


@dataclass(frozen=True)
class Artifact:
    """The files that a target made of one part, and how the runner uses them."""

    submodules: tuple[Submodule, ...]
    engine: EngineSpec
    toolkit: Mapping[str, str]
    """Versions of what the files were made for."""
    prompt_chunk_alone: int | None = None
    """Tokens of a prompt at a time that are fastest on a device that computes alone; None: all at once."""
    step_costs: Mapping[int, float] = field(default_factory=dict)
    """Rows of one sequence that there is code for → the time of such a step, in readings of all weights; other steps
    are filled up. Empty: there is code for any number."""
    token_costs: Mapping[int, float] = field(default_factory=dict)
    """Rows of one token each, of one sequence or of several, that there is code for → the time of such a step, in
    readings of all weights. Empty: they are computed one after the other."""
    peak_bytes: int | None = None
    """Memory for activations that the code takes, exactly; None: what the plan estimates."""


class TensorStore:
    """The tensors of one device, some of which an earlier build may have written. This one has none."""

    def copy(self, weight: Weight, file: BinaryIO, offset: int) -> bool:
        """Put the bytes of a weight into an open file at `offset`; False: they have to be computed."""
        return False

    def note(self, weight: Weight, file: str, offset: int) -> None:
        """The bytes of a weight lie there, in a file of the device's folder; later builds may copy them."""


NO_STORE = TensorStore()


@dataclass(frozen=True)
class Target(ABC):
    """A back end: lowers the graph of one part and writes its files.

    Everything that partc must know of a target stands here: a new one is a folder of `targets/` and a line in
    `partc.pipeline.registry.TARGETS`. Its fields are options: those of `COMMON_OPTIONS` come from the device, the
    others from `options:` in devices.yaml. Its module must load where its tools are not installed.
    """

    name: ClassVar[str]
    providers: ClassVar[tuple[str, ...] | None] = None
    """What `provider:` of a device may be; None: any name, the target does not care."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions its files depend on; files of an earlier build with others are not reused."""
    fusions: ClassVar[tuple[str, ...]] = ()
    """Names of the fusions that `without` can leave out, for `--disable`."""

    @classmethod
    def serves(cls, arch: str, provider: str) -> bool:
        """Whether it has code for such a device that is worth being taken where devices.yaml names no target."""
        return False

    @classmethod
    def host_options(cls) -> Mapping[str, object]:
        """The options that describe this machine's processor, for devices with `arch: host`."""
        return {}

    def without(self, fusions: Collection[str]) -> Target:
        """The target that leaves out these of its fusions, besides those that its options leave out."""
        return self

    def check_options(self) -> None:  # noqa: B027  # most targets have none
        """Refuse options whose values do not exist or do not fit together; needs no tool.

        Raises:
            UserError: `where` is the option.
        """

    def check(self) -> None:
        """Check the options, and make sure that every tool is there, which takes seconds at most.

        Raises:
            UserError: something is wrong or missing; says how to get it.
        """
        self.check_options()

    def refusal(self, node: Node) -> UserError | None:
        """Why `lower` refuses every graph with this node, where the node itself tells; plans go by it.

        Asked before the model is cut, of a target whose tools may not be there.
        """
        return None

    def token_costs(self, graph: Graph, info: ModelInfo) -> Mapping[int, float]:
        """Consecutive tokens of a request in a step → the time of such a step by that of one token, as is expected.

        Asked of a whole model before it is cut, of a target whose tools may not be there. Empty: it computes them one
        after the other.
        """
        return {}

    def widened(self, dtype: str) -> frozenset[str]:
        """Which of `weights` and `activations` of that type take the memory of float32, for lack of kernels."""
        return frozenset()

    def stored_bytes(self, weight: Weight) -> int:
        """Bytes of a weight in its files, and in the memory of its engine."""
        return weight.bytes({})

    @property
    def shares_steps(self) -> bool:
        """Whether its code computes tokens of several requests in one step."""
        return False

    def identity(self) -> object:
        """What its files depend on besides graphs and `libraries`, as data for JSON: options, versions of tools."""
        return repr(self)

    @abstractmethod
    def lower(self, graphs: Sequence[Graph], info: ModelInfo) -> list[Graph]:
        """The graphs of one part in operators that this target runs; those given stay as they are.

        Raises:
            UserError: an operator has no lowering; names node and operator.
        """

    @abstractmethod
    def emit(
        self, part: Part, info: ModelInfo, folder: Path, progress: Progress, store: TensorStore = NO_STORE
    ) -> Artifact:
        """Write the files of one part into `folder`, weights streamed from `info.folder` tensor by tensor."""
