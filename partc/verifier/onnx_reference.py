"""The original as an ONNX file in onnxruntime, and the tensors in it that values of a cut model are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from partc.config.model import ModelConfig
from partc.config.sources import OnnxFile
from partc.errors import ModelError
from partc.verifier.cut_graph import CutGraph
from partc.verifier.reference import Reference

if TYPE_CHECKING:
    import onnx

Array = npt.NDArray[Any]

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""onnxruntime's option: where the external data lies of a model that is no file."""


class OnnxReference(Reference):
    """The whole ONNX file in onnxruntime."""

    def __init__(self, path: Path, config: ModelConfig | None = None, disable: tuple[str, ...] = ()) -> None:
        """`config`: sizes and inputs that model.yaml fixes; `disable`: fusions that the compile left out."""
        self.path = path
        self._config = config or ModelConfig(OnnxFile(path), task="graph")
        self.graph = CutGraph(self._config, disable)

    def outputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The graph's outputs; raises ModelError where onnxruntime cannot run it."""
        return self._run(None, {**inputs, **self._constants()})

    def counterparts(self, inputs: Mapping[str, Array], names: Collection[str]) -> dict[str, Array]:
        """See `Reference`; the origin of a value is the name of a tensor of the file."""
        model = self._settled()
        made = {name for node in model.graph.node for name in node.output if name}

        def tensors(needed: set[str]) -> dict[str, Array]:
            return {**inputs, **self.tensors(inputs, needed, model)}

        return self.graph.counterparts(names, made.__contains__, tensors)

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
