"""Pieces: what no placement cuts, in one way of sharing."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from partc.format.placement import Share, stages_of
from partc.format.plan import SharedStage, SharedStages
from partc.planner.model.pieces import Phases, Piece, cut_into_pieces, piece_name, pieces_of, section_name

COUNT = 8
NAMES = st.lists(st.sampled_from("abc"), min_size=COUNT, max_size=COUNT)


def chain(names: list[str]) -> Phases:
    stages = tuple(SharedStage(stage.submodules, stage.devices) for stage in stages_of(names))
    return {"prefill": stages, "decode": stages}


def shared(*stages: tuple[int, int, str, Share]) -> SharedStages:
    return tuple(SharedStage((first, last), tuple(names), share) for first, last, names, share in stages)


@given(st.lists(NAMES, min_size=1, max_size=3), st.sets(st.integers(0, COUNT + 4)))
def test_pieces_of_chains_are_cut_at_the_borders_of_all(
    placements: list[list[str]], further: set[int]
) -> None:
    layouts = cut_into_pieces([chain(names) for names in placements], further)
    changes = {j for names in placements for j in range(1, COUNT) if names[j] != names[j - 1]}
    firsts = [0, *sorted(changes | {j for j in further if 0 < j < COUNT})]
    pieces = pieces_of(layouts)
    assert [piece.first for piece in pieces] == firsts
    assert [j for piece in pieces for j in piece.indices] == list(range(COUNT))
    for names, layout in zip(placements, layouts, strict=True):
        for placed in itertools.chain.from_iterable(layout.placed.values()):
            assert {names[j] for j in placed.piece.indices} == {*placed.devices}


def test_phases_that_share_alike_have_the_same_pieces() -> None:
    whole = shared((0, 1, "a", "one"), (2, 5, "ab", "heads"), (6, 7, "b", "one"))
    (layout,) = cut_into_pieces([{"prefill": whole, "decode": whole}])
    assert layout.placed["prefill"] == layout.placed["decode"]
    assert [(piece.submodules, piece.count) for piece in pieces_of([layout])] == [
        ((0, 1), 1), ((2, 5), 2), ((6, 7), 1)
    ]  # fmt: skip


def test_who_has_all_of_a_piece_may_compute_it_alone() -> None:
    prompts = shared((0, 1, "a", "one"), (2, 7, "ab", "sequence"))
    tokens = shared((0, 7, "a", "one"))
    (layout,) = cut_into_pieces([{"prefill": prompts, "decode": tokens}])
    assert [placed.devices for placed in layout.placed["decode"]] == [("a",), ("a", "b")]


def test_another_device_has_the_same_piece_and_another_share_another() -> None:
    planned = {"prefill": shared((0, 3, "a", "one"), (4, 7, "bc", "heads"))}
    others = {"prefill": shared((0, 3, "a", "one"), (4, 7, "c", "one"))}
    swapped = {"prefill": shared((0, 3, "d", "one"), (4, 7, "cb", "heads"))}
    layouts = cut_into_pieces([planned, others, swapped])
    assert [(piece.first, piece.count) for piece in pieces_of(layouts)] == [(0, 1), (4, 2), (4, 1)]
    assert layouts[0].placed["prefill"][0].piece == layouts[2].placed["prefill"][0].piece


def test_names_tell_the_piece() -> None:
    assert piece_name(section_name(3, 1, 0)) == piece_name("part_3_once") == piece_name("part_3") == "part_3"
    assert Piece(4, (("one", ()),) * 2).submodules == (4, 5)


def test_what_two_placements_share_alike_is_one_piece_of_both() -> None:
    """They differ in the MLP behind it alone."""

    def stages(columns: tuple[int, int]) -> SharedStages:
        group = ("a", "b")
        return (
            SharedStage((0, 1), ("a",)),
            SharedStage((2, 3), group, "heads", (3, 1), "ring"),
            SharedStage((4, 7), group, "columns", columns, "ring"),
        )

    layouts = cut_into_pieces([{"prefill": stages((6, 2))}, {"prefill": stages((4, 4))}])
    assert [(piece.submodules, piece.count) for piece in pieces_of(layouts)] == [
        ((0, 1), 1), ((2, 3), 2), ((4, 7), 2), ((4, 7), 2)
    ]  # fmt: skip
    one, other = (layout.placed["prefill"] for layout in layouts)
    assert one[:2] == other[:2] and one[2] != other[2]
