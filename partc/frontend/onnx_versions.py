"""Whether the installed onnxruntime reads an ONNX file of these versions, asked of onnxruntime itself.

`partc verify` runs the file there, and the ort target hands its opset on: what is too new is said when the file is
imported, before the long work. Where onnxruntime is not installed, nothing is refused.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from partc.errors import ModelError

_FORMAT = "IR version"
_OLD_FORMAT, _OLD_OPSET = 8, 17
"""Versions that every onnxruntime reads which partc works with."""


def check_versions(model: onnx.ModelProto, path: Path) -> None:
    """Refuse a file that is newer than the installed onnxruntime. It loads a model of one node, a few if it refuses.

    Raises:
        ModelError: says what the file has and what onnxruntime reads.
    """
    versions = [model.ir_version, *(entry.version for entry in model.opset_import)]
    if not all(0 < version < 2**31 for version in versions):
        bad = next(version for version in versions if not 0 < version < 2**31)
        raise ModelError(f"{bad} is no version of ONNX", where=str(path), hint="export or download it again")
    if importlib.util.find_spec("onnxruntime") is None:
        return
    opsets = {
        "" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import
    }
    if _reads(model.ir_version, opsets):
        return
    if newer := list(_newer(model.ir_version, opsets)):
        import onnxruntime

        has = " and ".join(f"{what} {found}" for what, found, _ in newer)
        reads = " and ".join(f"{what} {most}" for what, _, most in newer)
        again = " and ".join(_remedy(what, most) for what, _, most in newer)
        raise ModelError(
            f"the file has {has}; the installed onnxruntime, {onnxruntime.__version__}, reads up to {reads}",
            where=str(path),
            hint=f"pip install --upgrade onnxruntime, or {again}",
        )


def _remedy(what: str, most: int) -> str:
    if what == _FORMAT:
        return f"save the model again with `model.ir_version = {most}` before `onnx.save`"
    return f"export the model again with {what} {most}"


def _newer(ir_version: int, opsets: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """The versions that are too new: name, version in the file, the newest that onnxruntime reads."""
    if not _reads(ir_version, {}):
        readable = (version for version in range(_OLD_FORMAT, ir_version) if not _reads(version + 1, {}))
        yield _FORMAT, ir_version, next(readable, _OLD_FORMAT)
    for domain, found in sorted(opsets.items()):
        if not _reads(_OLD_FORMAT, {domain: found}):
            oldest = 1 if domain else _OLD_OPSET
            readable = (
                version for version in range(oldest, found) if not _reads(_OLD_FORMAT, {domain: version + 1})
            )
            yield f"{domain} opset".lstrip(), found, next(readable, oldest)


def _reads(ir_version: int, opsets: Mapping[str, int]) -> bool:
    """Whether onnxruntime loads a model that does nothing, of these versions."""
    import onnxruntime

    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "versions",
        [onnx.helper.make_tensor_value_info("x", floats, [1])],
        [onnx.helper.make_tensor_value_info("y", floats, [1])],
    )
    imports = [onnx.helper.make_opsetid(*entry) for entry in {"": _OLD_OPSET, **opsets}.items()]
    model = onnx.helper.make_model(graph, ir_version=ir_version, opset_imports=imports)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime's exceptions have no base of their own
        return False
    return True
