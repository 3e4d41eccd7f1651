"""model.yaml → IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import torch
from torch._subclasses.fake_tensor import FakeTensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    GenerationConfig,
    PretrainedConfig,
)

from partc.config.model import ModelConfig
from partc.config.sources import GgufModel, OnnxFile
from partc.errors import ModelError
from partc.format.tasks import (
    AUDIO_TEXT,
    IMAGE_TEXT,
    SOURCE,
    SOURCE_IDS,
    SOURCE_LENGTH,
    WITH_MEDIA,
    WITH_SOURCE,
    generates,
)
from partc.frontend.checkpoint import Checkpoint, Weights, fill
from partc.frontend.containers import open_folder
from partc.frontend.context import check_context, with_fixed_tables
from partc.frontend.folder import is_gguf, read_index, tokenizer_folder
from partc.frontend.gguf.file import GgufFile
from partc.frontend.gguf.names import tensors_of
from partc.frontend.onnx_import import import_onnx
from partc.frontend.past import replace_past
from partc.frontend.quantized.tensors import model_tensors
from partc.frontend.source import Source, open_source
from partc.frontend.trace.export import MODEL_CLASSES, Exported, Sizes, export_model
from partc.frontend.trace.media import Media
from partc.frontend.trace.multimodal import MEDIA
from partc.frontend.trace.statements import NETWORK, origins_of, scope_of
from partc.frontend.trace.tensors import VALUES, TensorSizes
from partc.ir.effects import updates
from partc.ir.graph import Graph, ModelInfo, Module, Node
from partc.ir.types import BY_LONG
from partc.ir.weights import WeightExpr
from partc.pipeline.contract import Progress, no_progress

_PREFIX = f"{NETWORK}."


def load_model(config: ModelConfig, *, progress: Progress = no_progress) -> Module:
    """The model of `config` as IR; no weight is loaded.

    Time and memory are those of the graph: a Llama-2-7B shape takes seconds and well under 1 GB.

    Raises:
        ModelError: the model cannot be found, read or traced, or its checkpoint does not fit its config.
    """
    progress("read config", 0, 3)
    source, weights = open_weights(config)
    progress("trace model", 1, 3)
    dtype = getattr(torch, config.dtype)
    sizes = Sizes(
        config.max_sequence,
        config.max_source,
        config.max_batch,
        TensorSizes(config.image_size, config.samples, source.folder),
    )
    exported = export_model(source.config, config.task, dtype, sizes, weights.fit)
    progress("import graph", 2, 3)
    graph = _graph(exported)
    uniform = replace_past(graph)
    progress("import graph", 3, 3)
    info = replace(_info(config, source), uniform_positions=uniform)
    if exported.media is not None:
        info = _with_media(info, exported.media, config)
    has_tokens = exported.tensor is None or generates(config.task)
    return Module(info if has_tokens else _without_tokens(info), graph)


def open_weights(config: ModelConfig) -> tuple[Source, Weights]:
    """The model's config and its tensors, held against model.yaml; all that is known before the long work.

    Raises:
        ModelError: the model cannot be found or read, or is none that partc compiles.
    """
    assert not isinstance(config.model, OnnxFile)
    source = open_source(config.model)
    _check_architecture(source, config)
    check_context(source.config, config)
    source = replace(source, config=with_fixed_tables(source.config))
    if source.folder is None:
        return source, Weights()
    return source, open_checkpoint(source, source.folder, config)


def open_checkpoint(source: Source, folder: Path, config: ModelConfig) -> Checkpoint:
    """The tensors of a folder, whoever quantised them.

    Raises:
        ModelError: a file is missing or damaged, or parts of a quantised matrix do not fit together.
    """
    stored, read = read_index(folder), open_folder(folder)
    place = config.model.path if isinstance(config.model, GgufModel) else folder
    if is_gguf(folder):
        first = GgufFile(folder / next(iter(stored.values())).file)
        return Checkpoint(tensors_of(first, stored), read, place, config.ignore_tensors, config.adapters)
    plain = model_tensors(stored, source.quantized, read, folder)
    return Checkpoint(lambda network: plain, read, place, config.ignore_tensors, config.adapters)


def load_network(source: Source, folder: Path, config: ModelConfig, dtype: torch.dtype) -> Any:
    """The model of a folder as transformers runs it, with its weights.

    Those of GGUF files, of quantised checkpoints and of adapters are what this package reads: transformers wants the
    library of whoever made them, and has none for some (tests hold each format against its library, bit for bit).

    Raises:
        ModelError: it cannot be loaded.
    """
    kind = MODEL_CLASSES[config.task]
    if source.quantized is None and not is_gguf(folder) and not config.adapters:
        return kind.from_pretrained(folder, dtype=dtype).eval()
    network = kind.from_config(source.config, dtype=dtype).eval()
    fill(network, open_checkpoint(source, folder, config), open_folder(folder))
    return network


def _with_media(info: ModelInfo, media: Media, config: ModelConfig) -> ModelInfo:
    """The facts about a model that reads a picture or a sound among its tokens, which take a part of every prompt.

    Raises:
        ModelError: a sequence has no room for it.
    """
    least = media.rows + info.prompt + info.generate
    if least > info.max_sequence:
        what = "a picture" if info.task == IMAGE_TEXT else "a sound"
        raise ModelError(
            f"max_sequence is {info.max_sequence}, but {what} takes {media.rows} tokens, "
            f"and the workload is {info.prompt} + {info.generate} besides",
            where=config.sequence_place,
            hint=f"write max_sequence: {least} or more",
        )
    return replace(
        info,
        prompt=media.rows + info.prompt,
        placeholder_token=media.token,
        placeholders=media.rows,
        picture_size=media.size,
    )


def _without_tokens(info: ModelInfo) -> ModelInfo:
    """The facts about a model that takes a tensor: every step has one row, since there is no sequence of tokens."""
    return replace(
        info,
        max_sequence=1,
        prompt=1,
        generate=1,
        dims={"batch": info.max_batch},
        vocab_size=None,
        eos_token_ids=(),
        bos_token_id=None,
        pad_token_id=None,
    )


def _check_architecture(source: Source, config: ModelConfig) -> None:
    """Refuse to generate text without a source by an encoder-decoder: nobody trained its decoder alone.

    A checkpoint that holds the decoder as a model of its own (`BartForCausalLM`) says so in `architectures`. A model
    that reads pictures or sound has another task, too, and a task of these another model.
    """
    model = source.config
    _check_media(source, config)
    if config.task != "text-generation" or not getattr(model, "is_encoder_decoder", False):
        return
    names = model.architectures or ()
    decoder = any(name.endswith("ForCausalLM") for name in names)
    if decoder or (not names and type(model) in MODEL_FOR_CAUSAL_LM_MAPPING):
        return
    mappings = (MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING)
    found = zip(WITH_SOURCE, mappings, strict=True)
    task = next((task for task, mapping in found if type(model) in mapping), None)
    raise ModelError(
        f"{model.model_type} is an encoder-decoder: it reads a source before it generates text",
        where=f"{source.folder / 'config.json'}, is_encoder_decoder"
        if source.folder
        else "model.config.model_type",
        hint=f"write `task: {task}`"
        if task
        else "use a decoder (a model whose architecture ends in ForCausalLM, such as LlamaForCausalLM)",
    )


def _check_media(source: Source, config: ModelConfig) -> None:
    model = source.config
    is_media = type(model) in MODEL_FOR_MULTIMODAL_LM_MAPPING
    where = str(source.folder / "config.json") if source.folder else "model.config.model_type"
    if config.task == "text-generation" and is_media and type(model) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        task = IMAGE_TEXT if type(model) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING else AUDIO_TEXT
        raise ModelError(
            f"{model.model_type} reads pictures or sound among its tokens",
            where=where,
            hint=f"write `task: {task}`",
        )
    if config.task in WITH_MEDIA and not is_media:
        raise ModelError(
            f"{model.model_type} reads no pictures and no sound among tokens, as {config.task} does",
            where=where,
            hint="write `task: text-generation`, or another task that it is for",
        )


def _graph(exported: Exported) -> Graph:
    sources = exported.sources
    origins = origins_of(exported.model)
    scopes = {node.outputs[0].name or "": scope_of(node) for node in exported.model.graph}
    proto, symbols = _serialise(exported.model, sources)
    graph = import_onnx(proto, lambda name: sources.get(name.removeprefix(_PREFIX)), symbols, scopes)
    for value in graph.values():
        value.origin = origins.get(value.name)
    for value, name in zip(graph.outputs, exported.outputs, strict=True):
        value.name = name
    for given in graph.inputs:
        given.name = given.name.removeprefix(f"{MEDIA}_")
        if exported.tensor is not None and given.name in (VALUES, SOURCE):
            given.name = exported.tensor.name
        elif given.name == SOURCE:
            given.name = SOURCE_IDS
        given.origin = given.name
    _rename(graph)
    graph.name = str(exported.network.config.model_type)
    return graph


def _rename(graph: Graph) -> None:
    """Names that say what a value is: the exporter's own are mostly numbers.

    What a module of the source model computes last is called like the module, so a cut behind a layer is crossed by
    `model.layers.3`; what it computes on the way is called after the module and the operator, a cache's buffer after
    its state. O(values).
    """
    for value in graph.leaves():
        value.name = value.name.removeprefix(_PREFIX)
    wanted = {node.outputs[0]: _described(node) for node in graph.nodes if node.scope}
    wanted |= {node.outputs[0]: node.scope for node in {n.scope: n for n in graph.nodes if n.scope}.values()}
    wanted = {value: name for value, name in wanted.items() if value not in graph.outputs}
    taken = {value.name for value in graph.values() if value not in wanted}
    numbers: dict[str, int] = {}
    for value, name in wanted.items():
        while (unique := f"{name}.{numbers[name]}" if numbers.get(name) else name) in taken:
            numbers[name] = numbers.get(name, 0) + 1
        value.name = unique
        taken.add(unique)


def _described(node: Node) -> str:
    """The name of a value on the way: `model.layers.0.self_attn.transpose`, `cache.0.key.rows`."""
    for state in updates(node):
        return f"{state.name}.rows"
    return f"{node.scope}.{node.op.rpartition('.')[2].lower()}"


def _serialise(model: onnx_ir.Model, sources: Mapping[str, WeightExpr]) -> tuple[Any, dict[str, str]]:
    """The model as a message whose parameters are mere names, without what nodes note, and its symbols."""
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None
        if name.removeprefix(_PREFIX) in sources:
            value.const_value = onnx_ir.ExternalTensor(
                "by-name",
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=onnx_ir.Shape(tensor.shape.numpy()),
                name=name,
            )
        elif isinstance(getattr(tensor, "raw", None), FakeTensor):
            raise ModelError(f"the value of {name} is lost while the model is traced", where=f"tensor {name}")
    symbols = _symbols(model.graph)
    for node in model.graph:
        node.metadata_props.clear()
    return onnx_ir.to_proto(model), symbols


def _symbols(graph: onnx_ir.Graph) -> dict[str, str]:
    """The exporter's symbols (`s57`) by our names."""
    wanted: dict[str, tuple[str, ...]] = {"position": ("batch",), "index": ("sequence",), "past": ("past",)}
    if SOURCE_LENGTH in {value.name for value in graph.inputs}:
        wanted[SOURCE] = ("batch", SOURCE)
    found: dict[str, str] = {}
    for value in graph.inputs:
        for size, name in zip(value.shape or (), wanted.get(value.name or "", ()), strict=False):
            found[str(getattr(size, "value", size))] = name
    return found


def _info(config: ModelConfig, source: Source) -> ModelInfo:
    model = source.config
    eos, bos, pad = _special_tokens(source)
    classifier = config.task.endswith("-classification")
    text = model.get_text_config()
    dims = {"batch": config.max_batch, "sequence": config.max_sequence}
    if config.task == "text2text-generation":
        dims[SOURCE] = config.max_source
    return ModelInfo(
        name=config.name,
        task=config.task,
        folder=str(source.folder) if source.folder else ".",
        random=source.random,
        tokenizer=str(tokenizer_folder(config.tokenizer)) if config.tokenizer else None,
        dtype=BY_LONG[config.dtype].short,
        quantize=config.quantize,
        max_sequence=config.max_sequence,
        max_batch=config.max_batch,
        max_requests=config.max_requests,
        drafts=config.drafts,
        prompt=config.workload.prompt,
        generate=config.workload.generate,
        drafted=config.workload.drafted,
        batch=config.workload.batch if config.workload.batch > 1 else None,
        batches=config.batches,
        dims=dims,
        vocab_size=getattr(text, "vocab_size", None),
        eos_token_ids=eos,
        bos_token_id=bos,
        pad_token_id=pad,
        start_tokens=_start_tokens(source) if config.task in WITH_SOURCE else (),
        labels=_labels(model) if classifier else None,
    )


def _labels(model: PretrainedConfig) -> tuple[str, ...] | None:
    """The names of the classes; None where a config of several parts does not say them."""
    names = getattr(model, "id2label", None)
    return tuple(names[i] for i in sorted(names)) if names else None


def _start_tokens(source: Source) -> tuple[int, ...]:
    """What answers of an encoder-decoder begin behind: its first token, and one that all of them are made to have."""
    configs = _configs(source)
    start = _first(configs, "decoder_start_token_id")
    found = (
        _first(configs, "bos_token_id") if start is None else start,
        _first(configs, "forced_bos_token_id"),
    )
    if found[0] is None:
        raise ModelError(
            "its config does not say which token answers begin behind",
            where=str(source.folder or "model.config"),
            hint="write decoder_start_token_id into its config.json",
        )
    return tuple(int(token) for token in found if token is not None)


def _special_tokens(source: Source) -> tuple[tuple[int, ...], int | None, int | None]:
    """End, begin and padding tokens."""
    configs = _configs(source)
    eos = _first(configs, "eos_token_id")
    ends = tuple(eos) if isinstance(eos, list | tuple) else () if eos is None else (eos,)
    return (
        tuple(int(np.int64(token)) for token in ends),
        _first(configs, "bos_token_id"),
        _first(configs, "pad_token_id"),
    )


def _configs(source: Source) -> list[Any]:
    """Where special tokens stand; generation_config.json wins over config.json, as in transformers."""
    configs: list[Any] = [source.config.get_text_config(), source.config]
    path = Path(source.folder or ".") / "generation_config.json"
    if source.folder is not None and path.exists():
        try:
            configs.insert(0, GenerationConfig.from_pretrained(source.folder))
        except Exception as error:  # json, OS and validation errors alike
            raise ModelError(
                "not a generation config", where=str(path), hint="mend it or remove it"
            ) from error
    return configs


def _first(configs: list[Any], name: str) -> Any:
    return next((value for value in (getattr(c, name, None) for c in configs) if value is not None), None)
