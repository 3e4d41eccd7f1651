"""What a first step makes once: the programs of groups keep it, and later steps make and send it no more."""

from __future__ import annotations

import pytest

from partc.errors import PlanError
from partc.format.program import Keep, parse_program, print_program
from partc.planner.groups.kept import with_kept

SOURCE = """\
run encoder (source) -> (memory)
send memory to b
run head (ids, memory) -> (h)
send h to b
recv token from b
emit token
"""
OTHER = """\
recv memory from a
run keys (memory) -> (k)
recv h from a
run layer (h, k, memory) -> (logits)
sample logits -> token
send token to a
"""


def test_devices_keep_what_later_steps_read() -> None:
    programs = {"a": parse_program(SOURCE), "b": parse_program(OTHER)}
    first, later = with_kept(programs, programs, ["source"], ["ids", "position"], [])
    assert first["a"][:-1] == programs["a"] and first["a"][-1] == Keep(("memory",))
    assert first["b"][-1] == Keep(("k", "memory"))
    assert print_program(later["a"]) == (
        "run head (ids, memory) -> (h)\nsend h to b\nrecv token from b\nemit token\n"
    )
    assert print_program(later["b"]) == (
        "recv h from a\nrun layer (h, k, memory) -> (logits)\nsample logits -> token\nsend token to a\n"
    )


def test_a_sub_module_with_states_runs_in_every_step() -> None:
    programs = {"a": parse_program(SOURCE), "b": parse_program(OTHER)}
    _, later = with_kept(programs, programs, ["source"], ["ids"], ["keys"])
    assert "run keys (memory) -> (k)" in print_program(later["b"])


def test_without_such_inputs_nothing_changes() -> None:
    programs = {"a": parse_program(SOURCE), "b": parse_program(OTHER)}
    assert with_kept(programs, programs, [], ["ids", "source"], []) == (programs, programs)


def test_what_the_first_step_does_not_have_cannot_be_kept() -> None:
    first = {"a": parse_program(SOURCE), "b": parse_program(OTHER.replace("(h, k, memory)", "(h, k)"))}
    later = {"a": parse_program(SOURCE), "b": parse_program(OTHER.replace("(h, k, memory)", "(h, k, mask)"))}
    with pytest.raises(PlanError, match="b needs mask in later steps"):
        with_kept(first, later, ["source"], ["ids"], [])
