"""split-graph: parts and programs; the split model computes what the whole one does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.config.devices import load_devices
from partc.errors import PlanError
from partc.format.placement import stages_of
from partc.format.plan import PlanFile
from partc.format.program import Add, Cut, Emit, Join, Keep, Program, Recv, Run, Sample, Send, print_program
from partc.ir.graph import Input, Module, Part
from partc.ir.text import parse_module, print_module
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_passes
from partc.planner.model.evaluate import traffic_between
from partc.planner.model.problem import Edge
from partc.planner.simulate.script import workflow_of
from passes.partition_graph import problem_of
from passes.split_graph import SplitGraph
from tests.passes.models import decoder, graph
from tests.passes.random_graphs import Term, compute, modules, request


def placed(module: Module, assignment: Sequence[str]) -> list[Part]:
    """The parts of `module` when its sub-modules are placed so."""
    run_passes(module, load_passes("map-dependencies"))
    module.plan = PlanFile.from_json({"answer": {"assignment": list(assignment)}})
    run_passes(module, [SplitGraph()])
    assert module.parts is not None
    return module.parts


def programs(parts: Sequence[Part]) -> dict[str, list[str]]:
    return {part.device: print_program(part.programs["prefill"]).splitlines() for part in parts}


def llama(*assignment: str, layers: int = 2) -> list[Part]:
    module = decoder("llama", layers)
    run_passes(module, load_passes("find-cuts,form-submodules,coarsen-submodules"))
    return placed(module, assignment)


def test_a_ring_of_three() -> None:
    parts = llama("phone", "phone", "board", "board", "old", "old")
    assert programs(parts) == {
        "phone": [
            "run part_0 (input_ids, index, position) -> (l0.mid)",
            "send l0.mid to board",
            "recv token from old",
            "emit token",
        ],
        "board": [
            "recv l0.mid from phone",
            "run part_1 (index, position, l0.mid) -> (l1.mid)",
            "send l1.mid to old",
        ],
        "old": [
            "recv l1.mid from board",
            "run part_2 (length, l1.mid) -> (logits)",
            "sample logits -> token",
            "send token to phone",
        ],
    }
    assert all(part.programs["decode"] == part.programs["prefill"] for part in parts)


def test_one_device_sends_nothing() -> None:
    assert programs(llama(*["phone"] * 6)) == {
        "phone": [
            "run part_0 (input_ids, index, position, length) -> (logits)",
            "sample logits -> token",
            "emit token",
        ]
    }


def test_shared_nodes_are_recomputed_where_they_are_needed() -> None:
    phone, board, old = llama("phone", "phone", "board", "board", "old", "old")
    has_tables = ["cos" in {node.name for node in part.graphs[0].nodes} for part in (phone, board, old)]
    assert has_tables == [True, True, False]


def test_states_stay_with_their_device_and_leaves_are_clones() -> None:
    module = decoder("llama")
    run_passes(module, load_passes("find-cuts,form-submodules,coarsen-submodules"))
    before = print_module(module).partition("model")[2]
    phone, board, _ = placed(module, ["phone", "phone", "board", "board", "old", "old"])
    assert [state.name for state in phone.graphs[0].states()] == ["cache.0.key", "cache.0.value"]
    assert [state.name for state in board.graphs[0].states()] == ["cache.1.key", "cache.1.value"]
    assert not set(phone.graphs[0].values()) & set(module.graph.values())
    module.parts = module.plan = module.sdm = module.rdm = None
    assert print_module(module).partition("model")[2] == before


SKIP = """
    input %x: f32[batch, 8]
    input %kind: f32[batch, 8]
    input %position: f32[batch, 8]
    weight %w = f32[8, 8] from "m"#"w"
    %tables: f32[batch, 8] = Cos(%position)
    submodule 0
    %a: f32[batch, 8] = MatMul(%x, %w)
    %b: f32[batch, 8] = Add(%a, %tables)
    submodule 1
    %c: f32[batch, 8] = Relu(%b)
    submodule 2
    %d: f32[batch, 8] = MatMul(%c, %w)
    submodule 3
    %e: f32[batch, 8] = Add(%d, %a)
    %f: f32[batch, 8] = Mul(%e, %kind)
    submodule 4
    %g: f32[batch, 8] = Add(%f, %a)
    %h: f32[batch, 8] = Add(%g, %tables)
    output %h
"""


def test_a_residual_that_skips_two_devices_travels_once_and_directly() -> None:
    texts = programs(placed(graph(SKIP), ["p", "q", "r", "s", "s"]))
    assert texts["p"] == [
        "run part_0 (x, position) -> (b, a)",
        "send b to q",
        "send kind, a to s",
        "recv h from s",
        "emit h",
    ]
    assert texts["q"] == ["recv b from p", "run part_1 (b) -> (c)", "send c to r"]
    assert texts["r"] == ["recv c from q", "run part_2 (c) -> (d)", "send d to s"]
    assert texts["s"] == [
        "recv kind, a from p",
        "recv d from r",
        "run part_3 (position, kind, a, d) -> (h)",
        "send h to p",
    ]


def test_a_value_that_two_devices_need_is_sent_to_each() -> None:
    texts = programs(placed(graph(SKIP), ["p", "p", "p", "q", "r"]))
    assert texts["p"][1:3] == ["send kind, a, d to q", "send a to r"]
    assert texts["r"][:2] == ["recv a from p", "recv f from q"]


def test_outputs_of_an_inner_device_go_straight_to_the_source() -> None:
    module = graph("""
        input %x: f32[8]
        submodule 0
        %a: f32[8] = Relu(%x)
        submodule 1
        %b: f32[8] = Relu(%a)
        submodule 2
        %c: f32[8] = Relu(%b)
        output %c, %b, %a, %x
    """)
    assert programs(placed(module, ["p", "q", "r"])) == {
        "p": ["run part_0 (x) -> (a)", "send a to q", "recv b from q", "recv c from r", "emit c, b, a, x"],
        "q": ["recv a from p", "run part_1 (a) -> (b)", "send b to r", "send b to p"],
        "r": ["recv b from q", "run part_2 (b) -> (c)", "send c to p"],
    }


def test_the_name_token_may_be_taken() -> None:
    text = print_module(decoder("llama", 1)).replace("%last", "%token")
    module = parse_module(text)
    run_passes(module, load_passes("find-cuts,form-submodules"))
    count = len(module.submodules or ())
    texts = programs(placed(module, ["p", *["q"] * (count - 1)]))
    assert texts["p"][-2:] == ["recv token_1 from q", "emit token_1"]
    assert texts["q"][-2:] == ["sample logits -> token_1", "send token_1 to p"]


def test_targets_come_from_devices_yaml(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    figures = "arch: x86_64, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GiB"
    path.write_text(
        f"source: p\ndevices:\n  p: {{target: 'null', {figures}}}\n  q: {{target: ort, {figures}}}\n"
    )
    module = graph(SKIP)
    placed(module, ["p", "p", "p", "q", "q"])
    run_passes(module, [SplitGraph(devices=str(path))])
    assert [part.target for part in module.parts or ()] == ["null", "ort"]


def test_parts_survive_the_text_form() -> None:
    module = graph(SKIP)
    placed(module, ["p", "q", "r", "s", "s"])
    assert print_module(parse_module(print_module(module))) == print_module(module)


def test_a_device_that_comes_again_has_a_graph_for_each_interval() -> None:
    """`a` stays on p for sub-modules 3 and 4; q is sent `a` for sub-module 4 alone, and keeps nothing of 1."""
    parts = placed(graph(SKIP), ["p", "q", "r", "p", "q"])
    assert [[graph.name for graph in part.graphs] for part in parts] == [
        ["part_0", "part_3"],
        ["part_1", "part_4"],
        ["part_2"],
    ]
    assert programs(parts) == {
        "p": [
            "run part_0 (x, position) -> (b, a)",
            "send b to q",
            "send a to q",
            "recv d from r",
            "run part_3 (kind, a, d) -> (f)",
            "send f to q",
            "recv h from q",
            "emit h",
        ],
        "q": [
            "recv b from p",
            "run part_1 (b) -> (c)",
            "send c to r",
            "recv a from p",
            "recv f from p",
            "run part_4 (position, a, f) -> (h)",
            "send h to p",
        ],
        "r": ["recv c from q", "run part_2 (c) -> (d)", "send d to p"],
    }


def test_the_last_interval_may_be_on_the_source() -> None:
    parts = llama("phone", "phone", "board", "board", "phone", "phone")
    assert programs(parts) == {
        "phone": [
            "run part_0 (input_ids, index, position) -> (l0.mid)",
            "send l0.mid to board",
            "recv l1.mid from board",
            "run part_2 (length, l1.mid) -> (logits)",
            "sample logits -> token",
            "emit token",
        ],
        "board": [
            "recv l0.mid from phone",
            "run part_1 (index, position, l0.mid) -> (l1.mid)",
            "send l1.mid to phone",
        ],
    }


def test_what_an_interval_was_sent_stays_for_the_next_one_there() -> None:
    module = graph("""
        input %x: f32[8]
        submodule 0
        %a: f32[8] = Relu(%x)
        submodule 1
        %b: f32[8] = Relu(%a)
        submodule 2
        %c: f32[8] = Relu(%b)
        submodule 3
        %d: f32[8] = Sum(%c, %a, %b, %x)
        output %d, %b
    """)
    assert programs(placed(module, ["p", "q", "p", "q"])) == {
        "p": [
            "run part_0 (x) -> (a)",
            "send a to q",
            "send x to q",
            "recv b from q",
            "run part_2 (b) -> (c)",
            "send c to q",
            "recv d from q",
            "emit d, b",
        ],
        "q": [
            "recv a from p",
            "run part_1 (a) -> (b)",
            "send b to p",
            "recv x from p",
            "recv c from p",
            "run part_3 (x, a, b, c) -> (d)",
            "send d to p",
        ],
    }


def test_a_plan_for_another_graph() -> None:
    with pytest.raises(PlanError, match="places 1 sub-modules, the graph has 5"):
        placed(graph(SKIP), ["p"])


def test_without_a_plan() -> None:
    module = graph(SKIP)
    run_passes(module, load_passes("map-dependencies"))
    with pytest.raises(PlanError, match="no plan"):
        run_passes(module, [SplitGraph()])


Mail = dict[tuple[str, str, tuple[str, ...]], dict[str, Term]]
"""(sender, receiver, values) → a message under way."""


class Device:
    """Interprets one program over terms; stops where a message is missing."""

    def __init__(self, part: Part, whole: Module, source: bool) -> None:
        self.part, self.at = part, 0
        self.program = part.programs["prefill"]
        self.known = {n: t for n, t in request(whole).items() if source or _is_step(whole, n)}
        self.emitted: dict[str, Term] | None = None

    def advance(self, mail: Mail) -> bool:
        """Run until a message is missing; True if anything was done."""
        start = self.at
        while self.at < len(self.program) and self.step(mail):
            self.at += 1
        return self.at > start

    def step(self, mail: Mail) -> bool:
        match self.program[self.at]:
            case Recv(values, device):
                message = mail.pop((device, self.part.device, values), None)
                if message is None:
                    return False
                assert not set(message) & set(self.known), "a value that is here already"
                self.known.update(message)
            case Send(values, device):
                key = (self.part.device, device, values)
                assert key not in mail
                mail[key] = {name: self.known[name] for name in values}
            case Run(submodule, inputs, outputs):
                (graph,) = (graph for graph in self.part.graphs if graph.name == submodule)
                result = compute(graph, {name: self.known[name] for name in inputs})
                assert tuple(result) == outputs
                self.known.update(result)
            case Sample(logits, token):
                self.known[token] = ("sample", self.known[logits])
            case Add(terms, total):
                self.known[total] = ("add", *(self.known[name] for name in terms))
            case Cut() | Join() | Keep():
                raise AssertionError(self.program[self.at])
            case Emit(values):
                self.emitted = {name: self.known[name] for name in values}
        return True


def _is_step(whole: Module, name: str) -> bool:
    return any(
        value.name == name and isinstance(value, Input) and value.is_step for value in whole.graph.inputs
    )


@given(modules(), st.data())
def test_any_plan_computes_the_whole_function(text: str, data: st.DataObject) -> None:
    module = parse_module(text)
    module.candidates = data.draw(st.lists(st.sampled_from(module.graph.nodes), unique=True))
    run_passes(module, load_passes("form-submodules"))
    count = len(module.submodules or ())
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count))
    parts = placed(module, ["a", *names[1:]])
    ring = [Device(part, module, source=place == 0) for place, part in enumerate(parts)]
    mail: Mail = {}
    while sum(device.advance(mail) for device in ring):
        pass
    assert all(device.at == len(device.program) for device in ring), "a device waits for ever"
    assert not mail, "a message that nobody takes"
    assert ring[0].emitted == compute(module.graph, request(module))
    sent = [(i.device, name) for d in ring for i in d.program if isinstance(i, Send) for name in i.values]
    assert len(sent) == len(set(sent)), "a value goes to a device once"


def messages(parts: Sequence[Part]) -> set[tuple[int, int, frozenset[str]]]:
    """(sending interval, receiving interval, values) of every message but those to the end of the source's program."""
    sent: dict[tuple[str, str, tuple[str, ...]], int] = {}
    taken: dict[tuple[str, str, tuple[str, ...]], int] = {}
    for part in parts:
        coming: list[tuple[str, str, tuple[str, ...]]] = []
        for instruction in part.programs["prefill"]:
            match instruction:
                case Recv(values, device):
                    coming.append((device, part.device, values))
                case Run(submodule):
                    place = int(submodule.removeprefix("part_"))
                    taken |= dict.fromkeys(coming, place)
                    coming = []
                case Send(values, device):
                    sent[part.device, device, values] = place
                case _:
                    pass
    return {(sent[key], place, frozenset(key[2])) for key, place in taken.items()}


@given(modules(), st.data())
def test_the_planner_counts_the_same_messages(text: str, data: st.DataObject) -> None:
    module = parse_module(text)
    run_passes(module, load_passes("canonicalize"))
    module.candidates = data.draw(st.lists(st.sampled_from(module.graph.nodes), unique=True))
    run_passes(module, load_passes("form-submodules"))
    count = len(module.submodules or ())
    names = ["a", *data.draw(st.lists(st.sampled_from("abc"), min_size=count - 1, max_size=count - 1))]
    found = messages(placed(module, names))
    maps = {**(module.sdm or {}), **(module.rdm or {})}
    edges = [Edge(*ends, 1, value.name) for ends, values in sorted(maps.items()) for value in values]
    traffic = traffic_between(edges, stages_of(names))
    assert found == {(*ends, frozenset(name for _, name, _ in values)) for ends, values in traffic.items()}


@pytest.mark.parametrize("names", [["a", "a", "b", "b", "c", "c"], ["a", "b", "a", "c", "b", "b"]])
def test_the_simulator_runs_the_same_programs(names: Sequence[str], tmp_path: Path) -> None:
    """Instruction by instruction, `sample` aside, which costs nothing there."""
    file = tmp_path / "devices.yaml"
    figures = "target: 'null', arch: x86_64, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GiB"
    devices = "".join(f"  {name}: {{{figures}}}\n" for name in "abc")
    file.write_text(
        f"source: a\ndevices:\n{devices}links:\n  default: {{bandwidth: 1 Gbit/s, latency: 1 ms}}\n"
    )
    module = decoder("llama")
    run_passes(
        module,
        load_passes("find-cuts,form-submodules,coarsen-submodules,map-dependencies,profile-submodules"),
    )
    problem = problem_of(module, load_devices(file))
    parts = placed(module, names)
    for script in workflow_of(problem, stages_of(names)).scripts:
        assert list(script.programs) == [part.device for part in parts]
        for part in parts:
            assert _outline(script.programs[part.device]) == _outline(part.programs[script.phase])


def _outline(program: Program) -> list[tuple[str, str | int]]:
    """The instructions with their peers; the way back has one value, whatever its name."""
    return [
        (type(item).__name__, item.device if isinstance(item, Recv | Send) else 0)
        for item in program
        if not isinstance(item, Sample)
    ]
