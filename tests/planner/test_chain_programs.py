"""Programs of stages of one device each: who receives, computes and sends what, and in which order."""

from __future__ import annotations

from partc.format.placement import stages_of
from partc.format.program import Run, Sample, print_program
from partc.planner.programs.request import PieceCalls, chain_programs
from partc.planner.programs.work import Values


def run(number: int, inputs: str, outputs: str) -> PieceCalls:
    return PieceCalls(None, Run(f"part_{number}", tuple(inputs.split()), tuple(outputs.split())))


def listed(devices: str, pieces: list[PieceCalls], values: Values) -> dict[str, list[str]]:
    programs = chain_programs(stages_of(devices), pieces, values, ["prefill"])["prefill"]
    return {device: print_program(program).splitlines() for device, program in programs.items()}


def test_a_stage_of_two_pieces_receives_first_and_sends_last() -> None:
    pieces = [run(0, "ids", "h"), run(1, "h", "i"), run(2, "i", "o")]
    assert listed("aab", pieces, Values({"ids": True}, frozenset(), ("o",), None)) == {
        "a": [
            "run part_0 (ids) -> (h)",
            "run part_1 (h) -> (i)",
            "send i to b",
            "recv o from b",
            "emit o",
        ],
        "b": ["recv i from a", "run part_2 (i) -> (o)", "send o to a"],
    }


def test_the_programs_of_a_ring_that_returns() -> None:
    """The source receives for its second stage, and at the end for the client."""
    pieces = [
        run(0, "ids", "h skip"),
        run(1, "h", "i"),
        run(2, "i", "j"),
        run(3, "j skip", "logits"),
    ]
    values = Values({"ids": True}, frozenset(), ("token",), Sample("logits", "token"))
    assert listed("abac", pieces, values) == {
        "a": [
            "run part_0 (ids) -> (h, skip)",
            "send h to b",
            "send skip to c",
            "recv i from b",
            "run part_2 (i) -> (j)",
            "send j to c",
            "recv token from c",
            "emit token",
        ],
        "b": ["recv h from a", "run part_1 (h) -> (i)", "send i to a"],
        "c": [
            "recv skip from a",
            "recv j from a",
            "run part_3 (j, skip) -> (logits)",
            "sample logits -> token",
            "send token to a",
        ],
    }


def test_a_result_that_the_source_has_been_sent_is_not_sent_again() -> None:
    pieces = [run(0, "ids", "h"), run(1, "h", "i"), run(2, "i", "o")]
    values = Values({"ids": True}, frozenset(), ("i", "o"), None)
    assert listed("aba", pieces, values)["b"] == ["recv h from a", "run part_1 (h) -> (i)", "send i to a"]


def test_values_of_a_message_are_in_the_order_of_the_model() -> None:
    pieces = [run(0, "ids", "first second"), run(1, "second first", "o")]
    values = Values({"ids": True}, frozenset(), ("o",), None, order=["ids", "first", "second", "o"])
    assert listed("ab", pieces, values)["b"][0] == "recv first, second from a"


def test_the_first_step_keeps_what_later_ones_read() -> None:
    pieces = [
        PieceCalls(Run("part_0_once", ("source",), ("memory",)), Run("part_0", ("ids",), ("h",))),
        PieceCalls(None, Run("part_1", ("h", "memory"), ("o",))),
    ]
    values = Values({"source": False, "ids": True}, frozenset(), ("o",), None)
    programs = chain_programs(stages_of("ab"), pieces, values, ["prefill", "decode"])
    assert print_program(programs["prefill"]["b"]).splitlines() == [
        "recv h, memory from a",
        "run part_1 (h, memory) -> (o)",
        "send o to a",
        "keep memory",
    ]
    assert print_program(programs["decode"]["b"]).splitlines() == [
        "recv h from a",
        "run part_1 (h, memory) -> (o)",
        "send o to a",
    ]
