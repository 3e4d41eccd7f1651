"""An ONNX file as IR; its tensors stay in the file or in its external data."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.inliner import inline_local_functions

from partc.config.model import ModelConfig
from partc.errors import ModelError
from partc.format.first_bytes import HEAD, refuse_other_kind
from partc.frontend.onnx_branches import settle_branches
from partc.frontend.onnx_check import check_model, tensor_bytes
from partc.frontend.onnx_import import INLINE_BYTES, import_onnx
from partc.frontend.onnx_inputs import fix_inputs
from partc.frontend.onnx_upgrade import bring_up
from partc.frontend.onnx_versions import check_versions
from partc.ir.graph import ModelInfo, Module
from partc.ir.weights import Leaf
from partc.ir.whole import enclose, tensors_in


def load_onnx_file(config: ModelConfig, path: Path) -> Module:
    """The graph of the file `path`, its initializers as references.

    Raises:
        ModelError: not an ONNX model, or one too new for onnxruntime, external data outside its folder, or a symbolic
            size without a limit.
    """
    model, limits = read_settled(config, path)
    model = bring_up(model, path)
    enclose(model)
    large = {
        tensor.name: Leaf(path.name, tensor.doc_string or tensor.name)
        for tensor in model.graph.initializer
        if _external(tensor) or tensor_bytes(tensor) > INLINE_BYTES
    }
    graph = import_onnx(model, large.get)
    for value in graph.values():
        value.origin = value.name
    info = ModelInfo(
        name=config.name,
        task="graph",
        folder=str(path.parent),
        quantize=config.quantize,
        max_batch=config.max_batch,
        max_requests=config.max_requests,
        dims=limits,
    )
    return Module(info, graph)


def read_settled(config: ModelConfig, path: Path) -> tuple[onnx.ModelProto, dict[str, int]]:
    """The model with the sizes and inputs that `config` fixes, without branches that follow from them.

    Also the largest value of every size that is left open.

    Raises:
        ModelError: see `read_onnx` and `fix_inputs`.
    """
    model = read_onnx(path)
    for address, tensor in tensors_in(model.graph):
        tensor.doc_string = address  # goes with the tensor wherever a branch puts it
    limits = fix_inputs(model, config, path)
    settle_branches(model, limits)
    return model, limits


def read_onnx(path: Path) -> onnx.ModelProto:
    """The model without its external data, checked, with local functions inlined.

    Raises:
        ModelError: not an ONNX model, a damaged one, one too new for onnxruntime, or external data outside its folder.
    """
    try:
        with path.open("rb") as file:
            refuse_other_kind(file.read(HEAD), str(path), ModelError)
        model = onnx.load(path, load_external_data=False)
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except Exception as error:  # protobuf raises types of its own
        raise ModelError(
            "not an ONNX model, or a truncated one", where=str(path), hint="export or download it again"
        ) from error
    if not model.graph.node:
        raise ModelError("the ONNX model has no nodes", where=str(path), hint="is the file complete?")
    if {value.name for value in model.graph.input} <= {tensor.name for tensor in model.graph.initializer}:
        raise ModelError(
            "the ONNX model has no inputs: nothing could be asked of it", where=str(path),
            hint="export it with what a request brings as inputs",
        )  # fmt: skip
    check_versions(model, path)
    model = _inlined(model, path)
    check_model(model, path)
    for _, tensor in tensors_in(model.graph):
        if _external(tensor):
            check_external(tensor, path)
    return model


def _inlined(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    if not model.functions:
        return model
    try:
        return inline_local_functions(model)
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise ModelError(f"its functions cannot be inlined: {problem}", where=str(path)) from error


def _external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def check_external(tensor: onnx.TensorProto, path: Path) -> Path:
    """The file that holds the data of `tensor`.

    Raises:
        ModelError: the location leaves the model's folder, or is a link, or the data is not all there.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    where = f"{path}: tensor {tensor.name}"
    hint = "external data must be a plain file in the folder of the model"
    parts = Path(location).parts if "\0" not in location else ()
    if not parts or Path(location).is_absolute() or ".." in parts or "\\" in location:
        raise ModelError(
            f"external data at {location!r} is outside the model's folder", where=where, hint=hint
        )
    target: Path = path.parent / location
    steps = [path.parent.joinpath(*parts[: n + 1]) for n in range(len(parts))]
    if any(step.is_symlink() for step in steps):
        raise ModelError(f"external data at {location!r} is a symbolic link", where=where, hint=hint)
    if target.exists() and not target.is_file():
        raise ModelError(f"external data at {location!r} is no plain file", where=where, hint=hint)
    if not target.is_file():
        raise ModelError(
            f"external data {location!r} is missing", where=where, hint=f"put it beside {path.name}"
        )
    if target.stat().st_nlink > 1:
        raise ModelError(f"external data at {location!r} is a hard link", where=where, hint=hint)
    wanted = tensor_bytes(tensor)
    offset = _number(entries.get("offset", "0"), where)
    length = _number(entries.get("length", str(wanted)), where)
    if length != wanted:
        message = f"{length} bytes of external data, {wanted} expected"
        raise ModelError(message, where=where, hint="copy the model again, with its data files")
    if offset + length > target.stat().st_size:
        raise ModelError(
            f"external data {location!r} is truncated", where=where, hint="export or download it again"
        )
    return target


def _number(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"external data has the bad offset or length {text!r:.60}", where=where)
    return int(text)
