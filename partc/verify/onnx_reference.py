"""The original as an ONNX file in onnxruntime, and the tensors in it that values of a cut model are.

Which tensor a value is, is known by identity: the import notes it (`Value.origin`), and passes keep the note with the
value. A value that a pass made has none. It is computed by its own node from values that have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from partc.config.model import ModelConfig, OnnxFile
from partc.errors import ModelError
from partc.verify.operations import Shapes
from partc.verify.reference import Reference

if TYPE_CHECKING:
    import onnx

    from partc.ir.graph import Graph, Value

Array = npt.NDArray[Any]

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""onnxruntime's option: where the external data lies of a model that is no file."""
_MOST_NODES = 64
"""Nodes between a value that a pass made and tensors of the original."""


class OnnxReference(Reference):
    """The whole ONNX file in onnxruntime."""

    exact = True

    def __init__(self, path: Path, config: ModelConfig | None = None, disable: tuple[str, ...] = ()) -> None:
        """`config`: sizes and inputs that model.yaml fixes; `disable`: fusions that the compile left out."""
        self.path = path
        self._config = config or ModelConfig(OnnxFile(path), task="graph")
        self._disable = disable
        self._values: dict[str, Value] | None = None

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The graph's outputs; raises ModelError where onnxruntime cannot run it."""
        return self._run(None, {**inputs, **self._constants()})

    def counterparts(self, inputs: Mapping[str, Array], shapes: Shapes) -> dict[str, list[Array]]:
        """See `Reference`: one tensor for each value, found by identity."""
        from partc.verify.provenance import compute, origins

        values = self._imported()
        wanted = {name: values[name] for name in shapes if name in values}
        model = self._settled()
        known = {name for node in model.graph.node for name in node.output if name}
        needed = origins(wanted.values(), known, _MOST_NODES)
        tensors = {**inputs, **self.tensors(inputs, needed, model)}
        found = compute(wanted, tensors, self._graph.opset, _MOST_NODES)
        return {name: [tensor] for name in shapes if (tensor := found.get(name)) is not None}

    def tensors(
        self, inputs: Mapping[str, Array], names: set[str], model: onnx.ModelProto | None = None
    ) -> dict[str, Array]:
        """Tensors of the file by name, made outputs of a copy that is run without graph optimisations.

        Weights beside the file stay there: with them the copy might be more than the 2 GB that protobuf writes. Where
        onnxruntime is too old for that, such a model raises ModelError.
        """
        import onnx

        copy = model or self._settled()
        if not _takes_folder():
            onnx.load_external_data_for_model(copy, str(self.path.parent))
        outputs = {output.name for output in copy.graph.output}
        copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - outputs))
        made = self._run(copy, inputs)
        return {name: made[name] for name in names if name in made}

    def _settled(self) -> onnx.ModelProto:
        """The file with the sizes and inputs that are fixed, branches that follow from them in place of the `If`."""
        from partc.frontend.onnx_file import read_settled

        model, _ = read_settled(self._config, self.path)
        return model

    def _constants(self) -> dict[str, Array]:
        if not self._config.inputs:
            return {}
        from partc.frontend.onnx_file import read_onnx
        from partc.frontend.onnx_inputs import constant_inputs

        return constant_inputs(read_onnx(self.path), self._config.inputs)

    def _imported(self) -> dict[str, Value]:
        """The values of the graph that compile cut, by name."""
        if self._values is None:
            self._graph = self._simplified()
            self._values = {value.name: value for value in self._graph.values()}
        return self._values

    def _simplified(self) -> Graph:
        from partc.frontend import load_module
        from partc.pipeline.contract import Context
        from partc.pipeline.default import default_pipeline
        from partc.pipeline.manager import run_passes

        module = load_module(self._config)
        steps = default_pipeline(
            Path("devices.yaml"), "even", "eq1+frontier", Path("build"), ("simplify",), self._disable
        )
        run_passes(module, steps, Context())
        return module.graph

    def _run(self, copy: onnx.ModelProto | None, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the file; those of a copy, whose weights lie beside the file, without graph optimisations."""
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is raised, too
        if copy is not None:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry(_WEIGHTS_FOLDER, str(self.path.parent.resolve()))
        try:
            model = str(self.path) if copy is None else copy.SerializeToString()
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            names = [output.name for output in session.get_outputs()]
            return dict(zip(names, session.run(names, dict(inputs)), strict=True))
        except Exception as error:  # onnxruntime's exceptions have no base of their own
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> ModelError:
        """A hint about an original that onnxruntime cannot load or run; versions that are too new come first."""
        from partc.frontend.onnx_file import read_onnx

        try:
            read_onnx(self.path)
        except ModelError as newer:
            return newer
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return ModelError(
            f"onnxruntime cannot run the original: {first}",
            where=str(self.path),
            hint="does it run in onnxruntime by itself? If not, correct or export it again, and compile that",
        )


def _takes_folder() -> bool:
    """Whether onnxruntime knows the option `_WEIGHTS_FOLDER`: from 1.21 on."""
    import onnxruntime as ort

    return tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 21)
