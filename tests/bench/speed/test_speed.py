"""The arithmetic of the speed bench, and what it says; nothing is measured here."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.bench.llamas import SHAPES, matrix_values
from tests.bench.random_models import MODELS
from tests.bench.speed.aims import outcomes
from tests.bench.speed.clocks import Sample, process_clock
from tests.bench.speed.contestants import (
    CONTESTANTS,
    LLAMA_CPP,
    LLAMA_IQ4_NL,
    LLAMAS,
    ORT,
    ORT_128,
    ORT_GENAI,
    TRANSFORMERS,
    TVM,
    TVM_CACHE,
    TWO,
)
from tests.bench.speed.engines.contract import Stepping
from tests.bench.speed.figures import Figure, Table, tabulate
from tests.bench.speed.gguf_layouts import LAYOUTS, interleaved
from tests.bench.speed.machine import Machine
from tests.bench.speed.openvino_file import BLOCK
from tests.bench.speed.outputs import CHECKED, MOST, Array, answers, error
from tests.bench.speed.places import FORMATS, Cell, forget_bundles
from tests.bench.speed.tables import LARGER_BLOCKS, document
from tests.bench.speed.turns import CONTEXTS, PHASES, READ, Taken, requests, turns

MACHINE = Machine("a processor", 2, 2**34, 0.0, 0.5, 0.0, 0.0)
QUIET, BUSY = 1.0, 3.0
"""Factors by which the machine is slow in a round."""


CELL = Cell(Path("110M"), "int4", 1)


def table(ours: float, theirs: float, others: Mapping[str, float] | None = None, cell: Cell = CELL) -> Table:
    """Three rounds, one of them on a busy machine; seconds a token, and ten times that for the prompt."""

    def rounds(seconds: float) -> list[Sample]:
        return [Sample(seconds * pace, seconds) for pace in (QUIET, BUSY, QUIET)]

    every = {ORT: ours, ORT_GENAI: 0.5, LLAMA_CPP: theirs, **(others or {})}
    samples = {
        name: {
            "decode 128": rounds(taken),
            "prefill": rounds(10 * taken),
            "decode 512": rounds(2 * taken),
        }
        for name, taken in every.items()
    }
    samples[READ] = {"decode 128": rounds(1e-10), "decode 512": rounds(1e-10)}
    return tabulate(cell, Taken(samples), "wall")


def test_ratios_are_taken_within_rounds() -> None:
    found = table(0.5, 1.0)
    assert found.figure(ORT, "decode 128") == Figure(0.5, 0.5, 1.5)
    assert found.speed(ORT, LLAMA_CPP, "decode 128") == Figure(2.0, 2.0, 2.0)
    assert found.speed(ORT, "transformers", "decode 128") is None


def test_the_limit_is_what_a_token_reads() -> None:
    found = table(0.5, 1.0)
    assert found.byte_s("decode 128") == pytest.approx(1e-10)
    weights, token = matrix_values("110M"), 4 * 2 * 12 * 256
    assert found.read_bytes(ORT, 128) == pytest.approx(weights * 0.625 + token * 128)
    assert found.read_bytes(TVM, 512) == pytest.approx(weights * 0.5625 + token * 512)
    assert found.read_bytes(TVM_CACHE, 512) == pytest.approx(
        weights * 0.5625 + (64 + 4) / 64 / 4 * token * 512
    )
    part = found.of_the_limit(ORT, "decode 128")
    assert part is not None
    assert part.median == pytest.approx(found.read_bytes(ORT, 128) * 1e-10 / 0.5)
    assert found.of_the_limit(ORT, "prefill") is None


def test_others_are_held_against_partc_on_tvm_where_it_takes_part() -> None:
    assert table(0.5, 1.0).reference == ORT
    assert table(0.5, 1.0, {TVM: 0.25}).reference == TVM


@pytest.mark.parametrize(("ours", "met"), [(0.5, True), (2.0, False)])
def test_aims_say_whether_they_are_met(ours: float, met: bool) -> None:
    found = {one.says: one.met for one in outcomes([table(ours, 1.0)])}
    assert found["decode 128: on ort over llama.cpp"] is met
    assert found["prefill: on ort over llama.cpp"] is met
    assert not any("cut in 2" in says for says in found), "nothing was measured for those"


def test_the_fastest_of_several_formats_is_the_bar() -> None:
    found = outcomes([table(9.0, 1.0, {LLAMA_IQ4_NL: 0.8, TVM: 0.5})])
    (bar,) = [one.found for one in found if one.says == "decode 128: on tvm over the fastest of llama.cpp"]
    assert bar.median == pytest.approx(0.8 / 0.5)


def test_a_machine_that_is_slowed_has_aims_of_its_own() -> None:
    cell = replace(CELL, small_pages=True, features=("avx2",))
    found = outcomes([table(0.5, 1.0, {TVM: 0.9}, cell)])
    assert {one.least for one in found} == {1.0}
    assert [one.met for one in found] == [True, True]
    assert all(one.says.endswith("partc with avx2 alone, pages of 4 KiB") for one in found)


def test_the_document_says_what_is_missing_and_whether_the_machine_was_idle() -> None:
    tables = [table(0.5, 1.0)]
    absent = {"llama.cpp": "llama_cpp not installed; pip install it"}
    quiet = document(MACHINE, {"numpy": "2"}, tables, outcomes(tables), absent, 3)
    assert "- llama.cpp: llama_cpp not installed; pip install it" in quiet
    assert "not idle" not in quiet
    assert "was not idle" in document(replace(MACHINE, others=0.5), {}, tables, [], {}, 3)


def test_a_contestant_that_is_not_installed_is_noticed() -> None:
    assert replace(CONTESTANTS[LLAMA_CPP], needs=("numpy", "no_such_module")).missing == ["no_such_module"]


def test_turns_are_short_where_contestants_stay_loaded() -> None:
    names, asked = (READ, ORT, TWO), requests(PHASES, [128])
    fine = list(turns(CELL, names, asked, stay=True))
    assert [name for name, _ in fine[:6]] == [*names, *names]
    assert all(len(words) == 1 for _, words in fine)
    whole = dict(turns(CELL, names, asked, stay=False))
    assert list(whole) == list(names)
    for name, words in whole.items():
        assert words == [word for who, (word,) in fine if who == name]
    assert set(whole[READ]) == {"decode 128"}
    assert set(whole[TWO]) - set(whole[ORT]) == {"pair", "hop"}
    assert dict(turns(CELL, names, ["prefill"], stay=False))[TWO] == ["prefill"]


def test_less_is_taken_in_where_contexts_grow_and_the_prompt_lies_between() -> None:
    words = ["decode 16", "decode 128", "prefill", "decode 512", "decode 2048"]
    assert requests(PHASES, CONTEXTS) == words
    assert requests(["prefill"], CONTEXTS) == ["prefill"]
    assert requests(["decode"], [512, 16]) == ["decode 16", "decode 512"]


class Recorder:
    """A stepper that remembers what it was told."""

    def __init__(self, grows: bool) -> None:
        self.grows = grows
        self.said: list[str] = []

    def clear(self) -> None:
        self.said.append("clear")

    def take(self, tokens: int) -> None:
        self.said.append(f"take {tokens}")

    def step(self) -> None:
        self.said.append("step")

    def logits(self) -> Array:
        return np.full((1, 1, 4), len(self.said))

    def back(self, context: int) -> None:
        self.said.append(f"back {context}")


def test_tokens_are_timed_at_their_context_or_around_it() -> None:
    cut, grown = Recorder(grows=False), Recorder(grows=True)
    for recorder in (cut, grown):
        engine = Stepping(recorder)
        for context in (16, 128, 16):
            engine.decode(2, context)
    stay = ["step", "back 16", "step", "back 16"]
    assert cut.said == [
        *("take 16", *stay), *("take 112", "step", "back 128", "step", "back 128"), *("clear", "take 16", *stay),
    ]  # fmt: skip
    steps = ["step", "step"]
    assert grown.said == ["take 15", *steps, "take 110", *steps, "clear", "take 15", *steps]


def test_logits_are_looked_at_behind_a_prompt_and_a_step() -> None:
    recorder = Recorder(grows=True)
    assert [list(one) for one in answers(recorder)] == [[2.0] * 4, [3.0] * 4]
    assert recorder.said == ["clear", f"take {CHECKED}", "step"]


def test_logits_of_a_void_row() -> None:
    expected = np.random.default_rng(0).normal(size=(2, 4000))
    assert error(1.01 * expected, expected) == pytest.approx(0.01)
    worse = expected.copy()
    worse[1] = expected[0]
    assert error(worse, expected) == pytest.approx(2**0.5, abs=0.1), "of other tokens"
    assert error(0 * expected, expected) == 1.0
    for void in (expected[:, :0], [expected[0], expected[1, :0]], np.full_like(expected, np.nan)):
        assert not error(void, expected) <= max(MOST.values())


def test_rows_with_larger_blocks_are_named_and_have_files_of_their_own(tmp_path: Path) -> None:
    found = table(0.5, 1.0)
    assert LARGER_BLOCKS not in document(MACHINE, {}, [found], [], {}, 3)
    coarse = table(0.5, 1.0, {ORT_128: 0.5})
    assert LARGER_BLOCKS in document(MACHINE, {}, [coarse], [], {}, 3)
    assert coarse.read_bytes(ORT_128, 128) < coarse.read_bytes(ORT, 128)
    cells = [replace(CELL, place=tmp_path, kind=kind) for kind in FORMATS]
    paths = {
        one.files.path(cell): one
        for one in CONTESTANTS.values()
        for cell in cells
        if cell.kind in one.formats
    }
    assert {one.processes for one in paths.values()} == {1, 2, 3}
    for path in paths:
        path.mkdir(parents=True)
    forget_bundles(cells[FORMATS.index("int4")])
    assert {path.name for path in (tmp_path / "partc").iterdir()} == {"float32", "int8"}


def test_code_for_other_features_lies_apart() -> None:
    slowed = replace(CELL, features=("avx2",))
    for name, apart in ((TVM, True), (ORT, False)):
        files = CONTESTANTS[name].files
        assert (files.path(CELL) != files.path(slowed)) is apart


def test_every_contestant_can_be_drawn() -> None:
    pytest.importorskip("matplotlib", reason="draws the figures")
    from tests.bench.speed.plot import STYLES

    assert set(STYLES) == set(CONTESTANTS)


def test_names_in_gguf() -> None:
    def name(family: str, parameter: str) -> str:
        config = {"linear_num_key_heads": 1, "linear_num_value_heads": 1, "linear_key_head_dim": 1}
        return LAYOUTS[family].convert(parameter, np.ones((4, 4)), config)[0]

    assert name("llama", "model.layers.3.mlp.up_proj.weight") == "blk.3.ffn_up.weight"
    assert name("llama", "model.layers.11.self_attn.o_proj.weight") == "blk.11.attn_output.weight"
    assert name("llama", "lm_head.weight") == "output.weight"
    assert name("mamba2", "backbone.layers.0.mixer.conv1d.bias") == "blk.0.ssm_conv1d.bias"
    assert name("mamba2", "backbone.layers.0.mixer.D") == "blk.0.ssm_d"
    assert name("qwen3_5_text", "model.layers.1.linear_attn.dt_bias") == "blk.1.ssm_dt.bias"


def test_interleaved_rows_turn_as_neighbours(rng: np.random.Generator) -> None:
    """The halves that transformers turns, and the neighbours that llama.cpp turns, give the same products."""
    heads, head, width = 2, 8, 16
    weights = [rng.normal(size=(heads * head, width)) for _ in range(2)]
    x = rng.normal(size=width)
    angles = 1.7 * 10000.0 ** (-np.arange(head // 2) * 2 / head)

    def halves(rows: np.ndarray) -> np.ndarray:
        a, b = np.split(rows.reshape(heads, head), 2, axis=1)
        return np.hstack([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)])

    def neighbours(rows: np.ndarray) -> np.ndarray:
        pairs = rows.reshape(heads, head // 2, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        return np.stack(
            [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1
        )

    turned, plain = (
        [weight @ x for weight in kind] for kind in ([interleaved(w, heads) for w in weights], weights)
    )
    expected = np.sum(halves(plain[0]) * plain[1].reshape(heads, head), axis=1)
    found = np.sum(neighbours(turned[0]).reshape(heads, head) * turned[1].reshape(heads, head), axis=1)
    wrong = np.sum(neighbours(plain[0]).reshape(heads, head) * plain[1].reshape(heads, head), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not np.allclose(wrong, expected)


def test_the_clock_of_a_process_is_its_own() -> None:
    before = time.process_time()
    found = time.clock_gettime(process_clock(os.getpid()))
    assert before <= found <= time.process_time()


@pytest.mark.hf
@pytest.mark.parametrize("model", MODELS)
def test_matrices_and_states_are_counted_as_transformers_makes_them(model: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    counted = MODELS[model]
    config = transformers.CONFIG_MAPPING[counted.family](**counted.config)
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config(config).eval()
        cache = transformers.DynamicCache(config=config)
        name = "cache_params" if counted.family == "mamba2" else "past_key_values"
        made(torch.zeros((1, 8), dtype=torch.int64), use_cache=True, **{name: cache})
    linear = [module for module in made.modules() if isinstance(module, torch.nn.Linear)]
    assert sum(module.weight.numel() for module in linear) == counted.matrix_values
    rows = [one.keys.numel() + one.values.numel() for one in cache.layers if hasattr(one, "keys")]
    assert sum(rows) == 8 * counted.row_values
    whole = [one for one in cache.layers if hasattr(one, "recurrent_states")]
    states = [
        one.recurrent_states[0].numel() + one.conv_states[0][..., 1:].numel() for one in whole
    ]  # a column more than the convolution reads
    assert sum(states) == counted.state_values


def test_what_a_token_rewrites_counts_twice_and_transformers_stands_beside() -> None:
    cell = replace(CELL, place=Path("110M-mamba2"))
    found, model = table(0.5, 1.0, {TVM: 0.25}, cell), MODELS["110M-mamba2"]
    assert found.read_bytes(TVM, 128) == pytest.approx(model.matrix_values * 0.5625 + 8 * model.state_values)
    assert found.read_bytes(TVM, 512) == found.read_bytes(TVM, 128), "it keeps no rows"
    assert "A token reads and writes " in document(MACHINE, {}, [found], [], {}, 3)
    taking = {name for name, one in CONTESTANTS.items() if one.takes_part(cell)}
    assert taking == {TVM, ORT, TRANSFORMERS, *LLAMAS}
    assert TRANSFORMERS not in {name for name, one in CONTESTANTS.items() if one.takes_part(CELL)}


@pytest.mark.hf
@pytest.mark.parametrize(("kind", "most"), [("float32", 1e-5), ("int8", 0.1), ("int4", 0.5)])
def test_openvino_computes_the_model(tmp_path: Path, kind: str, most: float) -> None:
    pytest.importorskip("openvino", reason="a contestant of the bench, which does not come with partc")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.bench.speed.engines.openvino import _Stepper
    from tests.bench.speed.openvino_file import write_openvino

    torch.manual_seed(0)
    shape = {**SHAPES["110M"], "hidden_size": 4 * BLOCK, "intermediate_size": 256, "vocab_size": 320}
    model = LlamaForCausalLM(LlamaConfig(**{**shape, "num_hidden_layers": 2, "num_attention_heads": 4,
                                            "num_key_value_heads": 2})).eval()  # fmt: skip
    model.save_pretrained(tmp_path / "checkpoint")
    write_openvino(tmp_path / "checkpoint", tmp_path / kind, kind)
    tokens = np.random.default_rng(0).integers(0, 320, 20)
    with torch.no_grad():
        expected = model(torch.tensor(tokens[None])).logits[0].numpy()
    stepper = _Stepper(tmp_path / kind, 1)
    for begin, end in ((0, 15), (15, 18), (18, 19)):
        stepper.infer(tokens[begin:end])
        found = stepper.logits()[0, 0]
        wrong = np.abs(found - expected[end - 1]).max() / np.abs(expected[end - 1]).max()
        assert wrong < most


@pytest.mark.hf
@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        ("110M", {"num_hidden_layers": 2}),
        ("110M-mamba2", {"num_hidden_layers": 2}),
        ("110M-delta", {"num_hidden_layers": 4}),
    ],
)
def test_llama_cpp_computes_the_model(tmp_path: Path, model: str, sizes: dict[str, int]) -> None:
    for package in ("llama_cpp", "gguf"):
        pytest.importorskip(package, reason="a contestant of the bench, which does not come with partc")
    import torch

    from tests.bench.speed.engines.hf import load_stepper
    from tests.bench.speed.engines.llama import Stepper
    from tests.bench.speed.gguf_file import write_gguf

    small = replace(MODELS[model], config={**MODELS[model].config, "vocab_size": 512, **sizes})
    small.make_checkpoint(tmp_path)
    reference = load_stepper(tmp_path / "checkpoint", 1)
    network = reference._model  # type: ignore[attr-defined]
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 1:  # where a head or a row is taken for another, equal numbers would hide it
                parameter.add_(torch.rand_like(parameter) / 4)
            elif "conv1d" in name:
                parameter.mul_(3)
    network.save_pretrained(tmp_path / "checkpoint")
    write_gguf(tmp_path / "checkpoint", tmp_path / "F32.gguf")
    stepper = Stepper(tmp_path / "F32.gguf", 1)
    for one in (reference, stepper):
        one.clear()
        one.take(40)
        one.step()
    expected, found = reference.logits().reshape(-1), stepper.logits().reshape(-1)
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max(), "its cache has 16 bits"
