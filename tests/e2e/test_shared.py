"""Models whose blocks several devices share: the tokens and values of the ring against transformers."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from partc.cli.verdict import verdict
from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import BundleError, PlanError
from partc.format.dims import cut_sizes
from partc.format.dtypes import Array
from partc.format.plan import SharedStage
from partc.format.program import Add, Run
from partc.ir.graph import Module
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module
from partc.pipeline.default import default_pipeline
from partc.pipeline.manager import run_passes
from partc.planner.model.problem_json import read_problem
from partc.runtime.client.launch import launch_local
from partc.runtime.client.results import Result
from partc.verifier.compare import join_steps
from partc.verifier.expectation import Original
from partc.verifier.inputs import Answer
from partc.verifier.pieces import crossed_pieces, order_of, pieces_of
from partc.verifier.reference import Reference, open_reference
from partc.verifier.report import Case, CutError, Report
from tests.families.check import (
    CHUNK,
    MAX_SEQUENCE,
    compile_ring,
    devices_file,
    sample_prompts,
    save_tiny,
    simplified,
)
from tests.families.ring import DirectRing
from tests.families.tiny import tiny_config

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.in_turns(8, whole=True)]
TOKENS = 64
TOLERANCE = 1e-4
TWO_LAYERS = {"num_hidden_layers": 2, "n_layer": 2}


@dataclass(frozen=True)
class Model:
    """Two layers of a tiny model, and what is to come out of them."""

    config: ModelConfig
    text: str
    """Its simplified IR."""
    reference: Reference
    prompts: tuple[list[int], ...]
    tokens: tuple[list[int], ...]
    """Greedy tokens of transformers behind each prompt."""

    def error(self, ring: DirectRing, request: int, prompt: list[int]) -> float:
        """Largest difference of the logits behind a prompt."""
        right = self.reference.outputs({"input_ids": np.array([prompt])})["logits"][:, -1:]
        return float(np.abs(logits_behind(ring, request)[:, :1] - right).max())


def made(family: str, folder: Path) -> Model:
    fields = tiny_config(family)
    save_tiny(
        fields | {key: size for key, size in TWO_LAYERS.items() if key in fields}, folder / "checkpoint"
    )
    config = ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=MAX_SEQUENCE, max_batch=2, max_requests=3
    )
    reference, prompts = open_reference(config), tuple(sample_prompts(97))
    tokens = tuple(reference.generate(prompt, TOKENS) for prompt in prompts)
    return Model(config, simplified(config), reference, prompts, tokens)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return made("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return made("gpt2", tmp_path_factory.mktemp("gpt2"))


Change = Callable[[Module], None]


def ring_of(
    text: str,
    folder: Path,
    count: int,
    strategy: str,
    spoil: Change | None = None,
    plan: Change | None = None,
    targets: Sequence[str] = ("ort",),
) -> DirectRing:
    """The ring of `count` devices that share blocks; `plan` changes the plan, `spoil` the programs."""
    module, devices = parse_module(text), devices_file(folder, count, targets)
    build = folder / f"build-{strategy}-{count}{spoil.__name__ if spoil else ''}"
    steps = default_pipeline(devices, strategy, "eq1+frontier", build, ("cut", "measure", "place", "emit"))
    for step in steps:
        run_passes(module, [step])
        change = {"partition-graph": plan, "split-graph": spoil}.get(step.name)
        if change:
            change(module)
    return DirectRing(build)


def logits_behind(ring: DirectRing, request: int) -> Array:
    """The logits of a request, one behind the other."""
    crossed = join_steps(ring.trace[request])
    (logits,) = (array for (_, peer, device), array in crossed.items() if peer == device)
    return logits


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("strategy", ["galaxy", "sequence-parallel", "megatron"])
def test_the_tokens_of_a_group_are_those_of_the_whole_llama(
    llama: Model, strategy: str, tmp_path: Path
) -> None:
    """Three devices are more than it has groups of heads: one has no share of its attention."""
    check_group(llama, strategy, 3, tmp_path)


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    ("strategy", "count"), [("galaxy", 2), ("galaxy", 3), ("sequence-parallel", 2), ("megatron", 2)]
)
def test_the_tokens_of_a_group_are_those_of_the_whole_gpt2(
    gpt2: Model, strategy: str, count: int, tmp_path: Path
) -> None:
    """Products with a bias, whose rows lie in one axis with the batch."""
    check_group(gpt2, strategy, count, tmp_path)


def test_rows_in_one_axis_with_their_sequences(tmp_path: Path) -> None:
    """OPT's MLPs have [batch * sequence, hidden]: rows get an axis of their own where values leave a graph."""
    check_group(made("opt", tmp_path), "galaxy", 3, tmp_path)


def check_group(model: Model, strategy: str, count: int, folder: Path) -> None:
    ring = ring_of(model.text, folder, count, strategy)
    check_tokens(model, ring)
    crossed = {name for trace in ring.trace.values() for item in trace for name in item.values}
    assert any(f"rows1of{count}" in name for name in crossed) == (strategy != "megatron")


def check_tokens(model: Model, ring: DirectRing) -> None:
    """Prompts alone, at once, in a batch of unequal ones, and in parts."""
    assert tuple(ring.generate([prompt], TOKENS)[0] for prompt in model.prompts) == model.tokens
    for number, prompt in enumerate(model.prompts, 1):
        assert model.error(ring, number, prompt) < TOLERANCE
    together = ring.generate_together([[prompt] for prompt in model.prompts], TOKENS)
    assert tuple(batch[0] for batch in together) == model.tokens
    assert tuple(ring.generate(model.prompts[1:], TOKENS)) == model.tokens[1:]
    assert DirectRing(ring.build, CHUNK).generate([model.prompts[2]], TOKENS)[0] == model.tokens[2]


def test_groups_stand_anywhere_in_a_ring(llama: Model, tmp_path: Path) -> None:
    """a | b and c | d | c, a and d, where tokens take another way past MLPs, which have no caches | b | a."""
    ring = ring_of(llama.text, tmp_path, 4, "galaxy", plan=plan_groups)
    check_tokens(llama, ring)
    assert {name for name, role in ring.roles.items() if role.running} == {*"abcd"}


def plan_groups(module: Module) -> None:
    assert module.plan is not None and module.plan.problem is not None
    problem = read_problem(module.plan.problem)
    groups = {
        "prefill": (("b", "c"), ("b", "c"), ("d",), ("c", "a", "d")),
        "decode": (("b", "c"), ("b",), ("d",), ("d",)),
    }
    phases = {}
    for phase, devices in groups.items():
        stages = [SharedStage((0, 0), ("a",))]
        for j, mine in enumerate(devices, 1):
            block = problem.submodules[j].block
            assert block is not None
            share: Any = block.share if len(mine) > 1 else "one"
            units = tuple(cut_sizes(block.units, len(mine))) if len(mine) > 1 else ()
            exchange: Any = "none" if not units else "tiles" if phase == "prefill" else "ring"
            stages.append(SharedStage((j, j), mine, share, units, exchange))
        phases[phase] = (*stages, *(SharedStage((j, j), ("b",)) for j in range(5, len(problem.submodules))))
    module.plan = structs.replace(module.plan, answer=structs.replace(module.plan.answer, phases=phases))


def test_caches_that_would_have_to_be_laid_out_again(llama: Model, tmp_path: Path) -> None:
    def plan(module: Module) -> None:
        assert module.plan is not None
        phases = module.plan.answer.phases
        alone = tuple(SharedStage((j, j), ("a",)) for stage in phases["decode"] for j in stage.indices)
        answer = structs.replace(module.plan.answer, phases={**phases, "decode": alone})
        module.plan = structs.replace(module.plan, answer=answer)

    with pytest.raises(PlanError, match="caches of sub-module 1 lie on a, b in one phase, on a in another"):
        ring_of(llama.text, tmp_path, 2, "galaxy", plan=plan)


@pytest.mark.tvm
def test_tiles_on_compiled_code(gpt2: Model, tmp_path: Path) -> None:
    """Steps are filled up to the sizes of entries; tiles have such of their own. The other device runs onnxruntime."""
    ring = ring_of(gpt2.text, tmp_path, 2, "galaxy", targets=("tvm", "ort"))
    role = ring.roles["a"]
    calls = [item for item in role.programs["prefill"] if isinstance(item, Run)]
    tiled = {call.submodule for call in calls if call.inputs != role.submodules[call.submodule].inputs}
    assert tiled and role.engine.library
    for name in tiled:
        rows = {entry[1] for entry in role.engine.library.functions[name].entries}
        assert math.ceil(max(rows) / 2) in rows
    assert tuple(ring.generate([prompt], TOKENS)[0] for prompt in gpt2.prompts) == gpt2.tokens
    for number, prompt in enumerate(gpt2.prompts, 1):
        assert gpt2.error(ring, number, prompt) < TOLERANCE


def report_on(model: Model, ring: DirectRing, prompt: list[int], count: int) -> Report:
    """What `partc verify` finds out about all values that cross links."""
    (tokens,) = ring.generate([prompt], count)
    types = {name: kind for role in ring.roles.values() for name, kind in role.types.items()}
    placement = ring.roles[ring.source].placement
    named = pieces_of(placement, types)
    trace = ring.trace[ring.requests]
    result = Result([prompt], [tokens], [], [], {}, 0.0, {}, trace)
    crossed = crossed_pieces(trace, [len(prompt)] + [1] * (count - 1), named, types)
    found = Original(model.reference, "float32").pieces(Answer(prompt, result), crossed)
    order = order_of(placement)
    cuts = [
        CutError(*place, *error, named[place[0]].text)
        for place in sorted(found, key=lambda one: order[one])
        if (error := found[place]) is not None
    ]
    return Report([Case("", None, None, 0.0)], cuts, TOLERANCE, 1.0)


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("strategy", ["galaxy", "megatron", "sequence-parallel"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_all_that_crosses_links_is_a_piece_of_a_value_of_the_original(
    family: str, strategy: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Over a prompt whose rows the devices do not divide equally, and tokens, of which some have no tile."""
    model: Model = request.getfixturevalue(family)
    ring = ring_of(model.text, tmp_path, 3, strategy)
    report = report_on(model, ring, model.prompts[1], 5)
    assert report.equal, verdict(report)
    blocks = {cut.piece.rpartition(" of ")[2] for cut in report.cuts}
    assert len(blocks) >= (
        2 if strategy == "sequence-parallel" else 4
    )  # an attention and an MLP in two layers


def add_twice(module: Module) -> None:
    """A sum of the source adds its own tile, or slice, twice."""
    change_sum(module, lambda item: Add((*item.terms, item.terms[1]), item.total))


def drop_a_share(module: Module) -> None:
    """A sum of the source leaves out what came before it."""
    change_sum(module, lambda item: Add(item.terms[1:], item.total))


def add_another_tile(module: Module) -> None:
    """A sum of the source adds another tile, or slice, of the same size in the place of its own."""
    change_sum(module, lambda item: Add((item.terms[0], item.terms[1].replace("0of3", "1of3")), item.total))


def change_sum(module: Module, change: Callable[[Add], Add]) -> None:
    """The first one of the source that is complete."""
    assert module.parts is not None
    source = module.parts[0]
    for phase, program in source.programs.items():
        sums = enumerate(program)
        at = next(place for place, item in sums if isinstance(item, Add) and not item.total.endswith(".to0"))
        item = program[at]
        assert isinstance(item, Add)
        source.programs[phase] = (*program[:at], change(item), *program[at + 1 :])


def add_too_late(module: Module) -> None:
    """On the source a sum moves behind the call that reads it, which gets the part of the source alone."""
    assert module.parts is not None
    source = module.parts[0]
    program = source.programs["prefill"]
    read = {name for item in program if isinstance(item, Run) for name in item.inputs}
    at = next(place for place, item in enumerate(program) if isinstance(item, Add) and item.total in read)
    add = program[at]
    assert isinstance(add, Add)
    use = next(
        place for place, item in enumerate(program) if isinstance(item, Run) and add.total in item.inputs
    )
    run = program[use]
    assert isinstance(run, Run)
    inputs = tuple(add.terms[-1] if name == add.total else name for name in run.inputs)
    source.programs["prefill"] = (
        *program[:at],
        *program[at + 1 : use],
        Run(run.submodule, inputs, run.outputs),
        add,
        *program[use + 1 :],
    )


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    ("strategy", "spoil"),
    [
        ("galaxy", drop_a_share),
        ("galaxy", add_another_tile),
        ("galaxy", add_too_late),
        ("megatron", drop_a_share),
        ("megatron", add_another_tile),
    ],
)
def test_a_wrong_sum_is_noticed(
    gpt2: Model, strategy: str, spoil: Callable[[Module], None], tmp_path: Path
) -> None:
    ring = ring_of(gpt2.text, tmp_path, 3, strategy, spoil)
    prompt = gpt2.prompts[2]  # three tiles of one size
    report = report_on(gpt2, ring, prompt, 1)
    assert gpt2.error(ring, 1, prompt) > 1e-2
    assert not report.equal
    first = report.wrong[0]
    assert "a" in (first.sender, first.receiver)  # a share that is dropped is on its way to the source
    assert "h.0." in first.value and f"{first.sender} sends to {first.receiver}" in verdict(report)


def test_a_tile_that_is_added_twice_is_refused(gpt2: Model, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="twice"):
        ring_of(gpt2.text, tmp_path, 3, "galaxy", add_twice)


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("precision", ["int4", "int8"])
def test_a_quantised_group_is_the_uncut_model_of_the_same_quantisation(
    llama: Model, precision: str, tmp_path: Path
) -> None:
    """Blocks of int4 are whole in a share, activations too: only the order of sums differs. In int8 each share rounds
    its part of a row of activations with a scale of its own, which is finer: logits are as near to the original as
    those of the uncut model. Not so where a share is left out.
    """
    text = simplified(replace(llama.config, quantize=Quantization(precision, precision, precision, block=16)))
    prompts = llama.prompts
    uncut = compile_ring(text, tmp_path / "uncut", devices_file(tmp_path, 1))
    expected = [uncut.generate([prompt], 32)[0] for prompt in prompts]
    for count, strategy in ((2, "megatron"), (3, "galaxy")):
        ring = ring_of(text, tmp_path, count, strategy)
        tokens = [ring.generate([prompt], 32)[0] for prompt in prompts]
        if precision == "int4":
            assert tokens == expected
        for request, prompt in enumerate(prompts, 1):
            lost = llama.error(uncut, request, prompt)
            assert llama.error(ring, request, prompt) < 1.5 * lost
            assert lost > 100 * TOLERANCE
    right = logits_behind(uncut, 3)[:, :1]
    ring = ring_of(text, tmp_path, 2, "megatron", drop_a_share)
    ring.generate([prompts[2]], 1)
    assert np.abs(logits_behind(ring, 1) - right).max() > 0.1


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("strategy", ["galaxy", "megatron"])
def test_a_member_that_is_killed_and_started_again_takes_no_token_with_it(
    llama: Model, strategy: str, tmp_path: Path
) -> None:
    """Two requests are in flight; the caches of the other members go back to where those of the new one begin."""
    build = ring_of(llama.text, tmp_path, 3, strategy).build
    with launch_local(build, runner="python") as ring, ring.client() as client:
        made = 0

        def on_token(_: object) -> None:
            nonlocal made
            made += 1
            if made == 6:
                os.kill(ring.pids["b"], signal.SIGKILL)

        requests = [
            client.submit([prompt], max_new_tokens=24, ignore_eos=True, on_token=told)
            for prompt, told in zip(llama.prompts[1:], (on_token, None), strict=True)
        ]
        found = [list(request.result().tokens[0]) for request in requests]
    assert made == 24
    assert found == [right[:24] for right in llama.tokens[1:]]
