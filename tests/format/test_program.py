from __future__ import annotations

from dataclasses import fields
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import BundleError
from partc.format.program import (
    INSTRUCTIONS,
    Add,
    Cut,
    Emit,
    Instruction,
    Join,
    Message,
    Recv,
    Run,
    Sample,
    Send,
    parse_program,
    print_program,
)

NAMES = st.one_of(
    st.sampled_from(["from", "to", "->", "a b", "#", "x-", '"', "h.0/é:1", "run", "-"]), st.text(min_size=1)
)
LISTS = st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple)
MAYBE_EMPTY = st.lists(NAMES, max_size=3, unique=True).map(tuple)
DEVICES = st.from_regex(r"\A[a-z][a-z0-9_]{0,5}\Z")
FIELDS = {"name": NAMES, "names": LISTS, "tuple": MAYBE_EMPTY, "device": DEVICES, "axis": st.integers(0, 15)}


def any_of(kind: type[Instruction]) -> st.SearchStrategy[Instruction]:
    """Instructions of a class, with fields as its grammar has them."""
    return st.builds(kind, *(FIELDS[way] for _, _, way, _ in Formatter().parse(kind.grammar) if way))


ANY = st.one_of([any_of(kind) for kind in INSTRUCTIONS.values()])


@given(st.lists(ANY, max_size=6).map(tuple))
def test_round_trip(program: tuple[Instruction, ...]) -> None:
    assert parse_program(print_program(program)) == program


def test_reads_every_instruction() -> None:
    text = """
    recv hidden_1, rope.cos from phone   # one message
    run part_1 (hidden_1, position) -> (hidden_2, logits)
    run part_2 () -> ()

    send hidden_2 to old
    sample logits->token
    add a, b, c -> d
    cut d -> e, f along 1
    join e, f -> g along 15
    emit token
    """
    assert parse_program(text) == (
        Recv(("hidden_1", "rope.cos"), "phone"),
        Run("part_1", ("hidden_1", "position"), ("hidden_2", "logits")),
        Run("part_2", (), ()),
        Send(("hidden_2",), "old"),
        Sample("logits", "token"),
        Add(("a", "b", "c"), "d"),
        Cut("d", ("e", "f"), 1),
        Join(("e", "f"), "g", 15),
        Emit(("token",)),
    )


def test_what_instructions_need_and_make() -> None:
    program = parse_program("recv a from x\nrun p (a) -> (b)\nsample b -> t\nsend t to x\nemit t\n")
    assert [step.reads for step in program] == [(), ("a",), ("b",), ("t",), ("t",)]
    assert [step.writes for step in program] == [("a",), ("b",), ("t",), (), ()]
    assert [step.awaits for step in program] == [(Message("x", ("a",)),), (), (), (), ()]
    assert [step.sends for step in program] == [(), (), (), (Message("x", ("t",)),), ()]


def test_every_instruction_says_what_its_text_is() -> None:
    assert list(INSTRUCTIONS) == ["recv", "run", "send", "sample", "add", "cut", "join", "emit", "keep"]
    for word, kind in INSTRUCTIONS.items():
        named = [field for _, field, _, _ in Formatter().parse(kind.grammar) if field]
        assert named == [field.name for field in fields(kind)], (
            f"{word}: the grammar has every field, in order"
        )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("jump x", "unknown instruction 'jump'"),
        ("recv", "a value expected at the end of the line"),
        ("recv a, from x", "'from' expected before 'x'"),
        ("recv a, a from x", "'a' stands twice"),
        ("recv a from Phone", "'Phone' is no device name"),
        ("send a from x", "'to' expected before 'from'"),
        ("run p (a) (b)", "'->' expected before '('"),
        ("run p (a -> (b)", "')' expected before '->'"),
        ("add -> b", "a value expected before '->'"),
        ("add a, b, c", "'->' expected at the end"),
        ("cut a -> b, c along 16", "'16' is no axis"),
        ("cut a -> b, c along -1", "'-1' is no axis"),
        ("join a, b -> c", "'along' expected at the end"),
        ("sample a -> b c", "'c' is too much"),
        ('emit "a', "cannot read"),
        ('emit "\\x"', "is not a JSON string"),
        ("emit a;b", "cannot read ';b'"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    with pytest.raises(BundleError) as caught:
        parse_program(f"# first\n{line}\n", "programs.decode")
    assert message in caught.value.message
    assert caught.value.where == "programs.decode, line 2"
