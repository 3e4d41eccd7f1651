"""The checks of manifest.json, written by hand, since a device has no JSON Schema library.

First the types of all entries, then the names: each refers to something, and a program uses only what it has.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from partc.errors import BundleError
from partc.format.dims import Dim, evaluate, symbols
from partc.format.program import (
    CHUNK,
    DEVICE_NAME,
    Emit,
    Program,
    Recv,
    Run,
    Sample,
    Send,
    chunk_program,
    parse_program,
    print_instruction,
    reads,
    writes,
)
from partc.runtime.manifest_entries import Entries
from partc.runtime.manifest_types import (
    FORMAT,
    RECOMPILE,
    STEP_INPUTS,
    TASKS,
    EngineSpec,
    FileEntry,
    Manifest,
    Model,
    State,
    Submodule,
    TensorType,
    TvmFunctions,
    TvmOptions,
)

_HEX64 = re.compile(r"[0-9a-f]{64}")
_PLATFORM = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)+")
_WIRE_DTYPES = frozenset(
    (
        *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "bfloat16", "float32", "float64"),
    )
)
_TOP_KEYS = frozenset(
    (
        *("format", "plan_id", "epoch", "device", "target", "source", "ring", "model", "inputs", "outputs"),
        *("dims", "values", "submodules", "engine", "programs", "endpoints", "peers", "predicted", "files"),
        *("memory", "toolkit", "verified_on_hardware", "digest", "overlap"),
    )
)


def read_manifest(raw: object, where: str) -> Manifest:
    """Check the content of a manifest, but for its digest.

    Raises:
        BundleError: with the key that is wrong and the remedy.
    """
    top = Entries(raw, where)
    found = top.get("format", str)
    if found != FORMAT:
        message = f"{found!r} cannot be read, this runner reads {FORMAT!r}"
        raise top.error("format", message, hint=_other_version(found))
    _allow(top, *_TOP_KEYS)
    manifest = _read(top)
    _check_names(manifest, top)
    return manifest


def _read(top: Entries) -> Manifest:
    peers, model = top.child("peers"), _model(top.child("model"))
    return Manifest(
        plan_id=_checked(top, "plan_id", _HEX64),
        epoch=top.count("epoch"),
        device=_checked(top, "device", DEVICE_NAME),
        target=top.get("target", str),
        source=_checked(top, "source", DEVICE_NAME),
        ring=top.texts("ring"),
        model=model,
        inputs=_tensors(top, "inputs"),
        outputs=_tensors(top, "outputs"),
        dims={name: top.child("dims").count(name, 1) for name in top.child("dims").raw},
        values=top.each("values", _tensor_type),
        submodules={item.name: item for item in map(_submodule, top.children("submodules"))},
        engine=_engine(top.child("engine")),
        programs=_programs(top.child("programs"), model),
        endpoints=dict(top.get("endpoints", dict)),
        receive=peers.texts("receive"),
        send=peers.texts("send"),
        predicted={name: _number(top.child("predicted"), name) for name in top.child("predicted").raw},
        files=top.each("files", _file_entry),
    )


def _model(raw: Entries) -> Model:
    task = raw.get("task", str)
    if task not in TASKS:
        raise raw.error("task", f"{task!r} is unknown, one of {', '.join(TASKS)}")
    return Model(
        name=raw.get("name", str),
        task=task,
        dtype=raw.get("dtype", str),
        max_sequence=raw.count("max_sequence", 1),
        max_batch=raw.count("max_batch", 1),
        max_requests=raw.count("max_requests", 1),
        vocab_size=raw.optional("vocab_size", int),
        eos_token_ids=raw.ints("eos_token_ids"),
        pad_token_id=raw.optional("pad_token_id", int),
        bos_token_id=raw.optional("bos_token_id", int),
        labels=raw.texts("labels") if raw.raw.get("labels") is not None else None,
        uniform_positions=bool(raw.optional("uniform_positions", bool)),
        prompt_chunk=raw.count("prompt_chunk", 1) if raw.raw.get("prompt_chunk") is not None else None,
    )


def _submodule(raw: Entries) -> Submodule:
    return Submodule(
        name=raw.get("name", str),
        file=raw.get("file", str),
        weights=raw.texts("weights"),
        inputs=raw.texts("inputs"),
        outputs=raw.texts("outputs"),
        states=tuple(
            State(item.get("name", str), item.get("input", str), item.get("output", str), _tensor_type(item))
            for item in raw.children("states")
        ),
    )


def _engine(raw: Entries) -> EngineSpec:
    kind, provider = raw.get("kind", str), raw.optional("provider", str) or "cpu"
    tvm = _tvm_options(raw.child("options")) if kind == "tvm" else None
    if tvm and provider not in ("cpu", "cuda"):
        raise raw.error("provider", f"tvm has no provider {provider!r}")
    return EngineSpec(kind, provider, raw.count("threads"), raw.get("options", dict), tvm)


def _tvm_options(raw: Entries) -> TvmOptions:
    _allow(raw, "platform", "processor", "functions")
    return TvmOptions(
        platform=_checked(raw, "platform", _PLATFORM),
        processor=raw.texts("processor") if "processor" in raw.raw else (),
        functions=raw.each("functions", _tvm_functions),
    )


def _tvm_functions(raw: Entries) -> TvmFunctions:
    _allow(raw, "entries", "weights")
    entries = raw.get("entries", list)
    if not entries or not all(map(_is_entry, entries)):
        raise raw.error("entries", "a list of pairs [batch, sequence] is expected")
    return TvmFunctions(tuple((batch, rows) for batch, rows in entries), raw.texts("weights"))


def _allow(raw: Entries, *keys: str) -> None:
    unknown = sorted(set(raw.raw) - set(keys))
    if unknown:
        raise raw.error(unknown[0], "the key is unknown")


def _is_entry(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(type(n) is int and n > 0 for n in entry)


def _programs(raw: Entries, model: Model) -> dict[str, Program]:
    if "prefill" not in raw.raw or set(raw.raw) - {"prefill", "decode"}:
        raise BundleError("the programs are prefill and, with state, decode", where=raw.where, hint=RECOMPILE)
    programs = {name: parse_program(raw.get(name, str), f"{raw.where}.{name}") for name in raw.raw}
    if model.prompt_chunk is not None and "decode" in programs:
        programs[CHUNK] = chunk_program(programs["prefill"])
    return programs


def _tensors(raw: Entries, key: str) -> dict[str, TensorType]:
    return {item.get("name", str): _tensor_type(item) for item in raw.children(key)}


def _tensor_type(raw: Entries) -> TensorType:
    dtype = raw.get("dtype", str)
    if dtype not in _WIRE_DTYPES:
        raise raw.error("dtype", f"{dtype!r} is unknown")
    shape: list[Dim] = raw.get("shape", list)
    for dim in shape:
        if type(dim) not in (int, str) or (isinstance(dim, int) and dim < 0) or not _readable(dim):
            raise raw.error("shape", f"{dim!r} is not a size")
    return TensorType(dtype, tuple(shape))


def _file_entry(raw: Entries) -> FileEntry:
    return FileEntry(_checked(raw, "sha256", _HEX64), raw.count("bytes"))


def _number(raw: Entries, key: str) -> float:
    value = raw.any(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise raw.error(key, "a number of seconds is expected")
    return float(value)


def _checked(raw: Entries, key: str, pattern: re.Pattern[str]) -> str:
    text = raw.get(key, str)
    if not pattern.fullmatch(text):
        raise raw.error(key, f"{text!r} does not look right")
    return text


def _readable(dim: Dim) -> bool:
    try:
        evaluate(dim, dict.fromkeys(symbols(dim), 1))
    except (ValueError, ZeroDivisionError, RecursionError):
        return False
    return True


def _check_names(manifest: Manifest, top: Entries) -> None:
    """Every name refers to something: devices, files, sizes, and what the programs use."""
    for key, device in (("source", manifest.source), ("device", manifest.device)):
        if device not in manifest.ring:
            raise top.error(key, f"{device!r} is not in the ring")
    for key, names in (("peers.receive", manifest.receive), ("peers.send", manifest.send)):
        for name in names:
            if name not in manifest.ring or name == manifest.device:
                raise top.error(key, f"{name!r} is not another device of the ring")
    for submodule in manifest.submodules.values():
        for file in (submodule.file, *submodule.weights):
            if file not in manifest.files:
                raise top.error("submodules", f"{file!r} of {submodule.name} is not among the files")
    if manifest.engine.tvm and not set(manifest.submodules) <= set(manifest.engine.tvm.functions):
        raise top.error("engine.options.functions", "a sub-module is missing")
    for name in manifest.files:
        if not _inside(name):
            raise top.error("files", f"{name!r} does not stay in the folder")
    _check_sizes(manifest, top)
    for phase, program in manifest.programs.items():
        _check_program(manifest, phase, program, top)


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        bool(name)
        and "\\" not in name
        and "\0" not in name
        and not path.is_absolute()
        and ".." not in path.parts
    )


def _check_sizes(manifest: Manifest, top: Entries) -> None:
    states = [state for submodule in manifest.submodules.values() for state in submodule.states]
    types = {**manifest.types, **{state.name: state.type for state in states}}
    for name, tensor in types.items():
        for dim in tensor.shape:
            unknown = sorted(symbols(dim) - set(manifest.dims))
            if unknown:
                raise top.error(
                    "dims", f"{unknown[0]!r}, which the shape of {name!r} needs, has no largest value"
                )


def _check_program(manifest: Manifest, phase: str, program: Program, top: Entries) -> None:
    """What an instruction uses was made before it; devices, sub-modules and values are known."""
    known = set(STEP_INPUTS if manifest.has_step_inputs else ())
    known |= set(manifest.inputs) if manifest.is_source else set()
    where = f"{top.where}: programs.{phase}"
    for place, instruction in enumerate(program):
        text = print_instruction(instruction)
        if isinstance(instruction, Recv | Send) and instruction in program[:place]:
            raise BundleError(f"`{text}` stands twice", where=where, hint=RECOMPILE)
        missing = [name for name in reads(instruction) if name not in known]
        if missing:
            raise BundleError(
                f"`{text}` uses {missing[0]!r}, which is not there yet", where=where, hint=RECOMPILE
            )
        problem = _instruction_problem(manifest, instruction)
        if problem:
            raise BundleError(f"`{text}`: {problem}", where=where, hint=RECOMPILE)
        known |= set(writes(instruction))


def _instruction_problem(manifest: Manifest, instruction: Recv | Run | Send | Sample | Emit) -> str | None:
    match instruction:
        case Recv(device=device) if device not in manifest.receive:
            return f"{device!r} is not among peers.receive"
        case Send(device=device) if device not in manifest.send:
            return f"{device!r} is not among peers.send"
        case Recv(values=values) | Send(values=values):
            unknown = [name for name in values if name not in manifest.types]
            return f"the type of {unknown[0]!r} is not among values" if unknown else None
        case Run(submodule=name, inputs=inputs, outputs=outputs):
            module = manifest.submodules.get(name)
            if module is None:
                return f"{name!r} is not a sub-module"
            unknown = [value for value in (*inputs, *outputs) if value not in manifest.types]
            if unknown:
                return f"the type of {unknown[0]!r} is not among values"
            same = inputs == module.inputs and outputs == module.outputs
            return None if same else "the sub-module has other inputs or outputs"
        case Emit() if not manifest.is_source:
            return "only the source emits"
    return None


def _other_version(found: str) -> str:
    newer = found.startswith("partc-bundle/")
    return "install the partc that compiled it, or compile again with this one" if newer else RECOMPILE
