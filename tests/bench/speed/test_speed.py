"""The arithmetic of the speed bench, and what it says; nothing is measured here."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.bench.llamas import SHAPES, matrix_values
from tests.bench.speed.aims import outcomes
from tests.bench.speed.clocks import Sample, process_clock
from tests.bench.speed.contestants import CONTESTANTS, LLAMA_CPP, ORT_GENAI, TWO, UNCUT, UNCUT_128
from tests.bench.speed.figures import Figure, Table, tabulate
from tests.bench.speed.gguf_file import gguf_name, interleaved
from tests.bench.speed.machine import Machine
from tests.bench.speed.make import QUANTIZE
from tests.bench.speed.places import FORMATS, bundle, forget_bundles
from tests.bench.speed.tables import LARGER_BLOCKS, document
from tests.bench.speed.turns import PHASES, READ, Cell, Taken, turns

MACHINE = Machine("a processor", 2, 2**34, 0.0, 0.5, 0.0, 0.0)
QUIET, BUSY = 1.0, 3.0
"""Factors by which the machine is slow in a round."""


def table(ours: float, theirs: float) -> Table:
    """Three rounds, one of them on a busy machine; seconds a token, and ten times that for the prompt."""

    def rounds(seconds: float) -> list[Sample]:
        return [Sample(seconds * pace, seconds) for pace in (QUIET, BUSY, QUIET)]

    samples = {
        name: {"decode": rounds(taken), "prefill": rounds(10 * taken)}
        for name, taken in {UNCUT: ours, ORT_GENAI: 0.5, LLAMA_CPP: theirs}.items()
    }
    samples[READ] = {"decode": rounds(1e-10)}
    return tabulate(Cell(Path("110M"), "int4", 1), Taken(samples), "wall")


def test_ratios_are_taken_within_rounds() -> None:
    found = table(0.5, 1.0)
    assert found.seconds[UNCUT]["decode"] == Figure(0.5, 0.5, 1.5)
    assert found.speed(UNCUT, LLAMA_CPP) == Figure(2.0, 2.0, 2.0)
    assert found.speed(UNCUT, "transformers") is None


def test_the_limit_is_what_a_token_reads() -> None:
    found = table(0.5, 1.0)
    assert found.bandwidth == pytest.approx(1e10)
    assert found.limit_s == pytest.approx((matrix_values("110M") * 0.625 + 4 * 2 * 12 * 256 * 128) / 1e10)


@pytest.mark.parametrize(("ours", "met"), [(0.5, True), (2.0, False)])
def test_aims_say_whether_they_are_met(ours: float, met: bool) -> None:
    found = {one.says: one.met for one in outcomes([table(ours, 1.0)])}
    assert found["decode: uncut over llama.cpp"] is met
    assert found["prefill: uncut over llama.cpp"] is met
    assert not any("cut in 2" in says for says in found), "nothing was measured for those"


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
    cell, names = Cell(Path("110M"), "int4", 1), (READ, UNCUT, TWO)
    fine = list(turns(cell, names, PHASES, stay=True))
    assert [name for name, _ in fine[:6]] == [*names, *names]
    assert all(len(words) == 1 for _, words in fine)
    whole = dict(turns(cell, names, PHASES, stay=False))
    assert list(whole) == list(names)
    for name, words in whole.items():
        assert sorted(words) == sorted(word for asked, (word,) in fine if asked == name)
    assert set(whole[READ]) == {"decode"}
    assert set(whole[TWO]) - set(whole[UNCUT]) == {"pair", "hop"}
    assert "decode" not in dict(turns(cell, names, ["prefill"], stay=False))[TWO]


def test_rows_with_larger_blocks_are_named_and_have_files_of_their_own(tmp_path: Path) -> None:
    found = table(0.5, 1.0)
    assert LARGER_BLOCKS not in document(MACHINE, {}, [found], [], {}, 3)
    coarse = replace(found, seconds={**found.seconds, UNCUT_128: found.seconds[UNCUT]})
    assert LARGER_BLOCKS in document(MACHINE, {}, [coarse], [], {}, 3)
    assert coarse.of_the_limit(UNCUT_128) < coarse.of_the_limit(UNCUT) == found.limit_s / 0.5
    stored = {one.stored(kind) for one in CONTESTANTS.values() for kind in one.formats}
    assert stored == {*FORMATS, "int4-64", "int4-128"} == set(QUANTIZE)
    for kind in stored:
        bundle(tmp_path, kind, 1).mkdir(parents=True)
    forget_bundles(tmp_path, "int4")
    assert {path.name for path in (tmp_path / "partc").iterdir()} == {"float32", "int8"}


def test_names_in_gguf() -> None:
    assert gguf_name("model.layers.3.mlp.up_proj.weight") == "blk.3.ffn_up.weight"
    assert gguf_name("model.layers.11.self_attn.o_proj.weight") == "blk.11.attn_output.weight"
    assert gguf_name("lm_head.weight") == "output.weight"


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
@pytest.mark.parametrize("model", SHAPES)
def test_matrices_are_counted_as_transformers_makes_them(model: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPES[model]))
    linear = [module for module in made.modules() if isinstance(module, torch.nn.Linear)]
    assert sum(module.weight.numel() for module in linear) == matrix_values(model)
