"""Networks of others: each model.yaml is cut in three, run, and compared with its file in onnxruntime, cut by cut.

`python -m tests.bench.onnx_files [--target tvm] MODEL.yaml...` prints a row for each: the opset of the file, the parts,
the largest error of an output and of a cut beside the largest value there, or the reason of a refusal. The files are
those that packages bring; none is part of this repository.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import onnx

from partc.config.model import ModelConfig, load_model_config
from partc.config.sources import OnnxFile
from partc.errors import PartcError
from partc.verifier.expectation import Original
from partc.verifier.inputs import built_in_requests
from partc.verifier.onnx_reference import OnnxReference
from tests.families.check import compile_ring, devices_file, simplified

DEVICES = 3


def row(model: Path, target: str = "ort") -> str:
    """The result of one model.yaml, as a row of a table."""
    config = load_model_config(model)
    assert isinstance(config.model, OnnxFile)
    graph = onnx.load(config.model.path, load_external_data=False)
    opset = next(entry.version for entry in graph.opset_import if entry.domain in ("", "ai.onnx"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = _compared(config, Path(folder), target)
        except PartcError as error:
            found = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return f"{config.model.path.name} | {opset} | {found}"


def _compared(config: ModelConfig, folder: Path, target: str) -> str:
    assert isinstance(config.model, OnnxFile)
    ring = compile_ring(simplified(config), folder / "build", devices_file(folder, DEVICES, (target,)))
    original = Original(OnnxReference(config.model.path, config), "float32")
    role = next(iter(ring.roles.values()))
    worst, unknown, cuts = 0.0, 0, 0
    for number, request in enumerate(built_in_requests(role), start=1):
        right = original.outputs(request)
        for name, array in ring.outputs(request.ring).items():
            worst = max(worst, _relative(array, right[name]))
        crossed = {
            (name, item.peer, item.device): array
            for item in ring.trace[number]
            for name, array in item.values.items()
            if item.peer != item.device
        }
        errors = original.cuts_of_step(request, crossed)
        cuts = len(errors)
        unknown = sum(error is None for error in errors.values())
        worst = max(worst, *(error / max(1.0, size) for error, size in filter(None, errors.values())), 0.0)
    compared = f"{cuts} values cross" + (f", {unknown} of them without a counterpart" if unknown else "")
    verdict = "equal" if worst <= original.tolerance else "NOT EQUAL"
    return f"{len(ring.roles)} devices, {compared} | {verdict}, {worst:.1e}"


def _relative(found: object, right: object) -> float:
    from partc.verifier.compare import difference, largest

    return difference(found, right) / max(1.0, largest(right))  # type: ignore[arg-type]


def main() -> None:
    """Print the table."""
    arguments = sys.argv[1:]
    target = "ort"
    if arguments[:1] == ["--target"]:
        target, arguments = arguments[1], arguments[2:]
    for model in arguments:
        print(row(Path(model), target), flush=True)


if __name__ == "__main__":
    main()
