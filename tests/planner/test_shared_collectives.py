from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from partc.format.dims import cut_sizes
from partc.format.program import Send
from partc.planner.groups.collectives import (
    Ring,
    all_reduce_ring,
    all_reduce_star,
    gather,
    reduce_scatter,
)
from partc.planner.groups.lanes import Lanes
from partc.planner.model.problem import Link
from partc.planner.programs.exchanges import Group, tile_name


def ring_of(
    names: str, *, rows: int = 12, bytes_per_row: float = 1.0, latency: float = 0.0, overlap: bool = True
) -> Ring:
    """Links of 1 byte per second."""
    links = {(a, b): Link(a, b, 1.0, latency) for a, b in itertools.permutations(names, 2)}
    tiles = tuple(cut_sizes(rows, len(names)))
    return Ring(tuple(names), Lanes(links), tiles, rows * bytes_per_row, overlap)


def test_tiles_hold_every_row_once_and_may_be_empty() -> None:
    assert cut_sizes(7, 3) == [2, 2, 3]
    assert cut_sizes(1, 3) == [0, 0, 1]
    for rows, count in itertools.product(range(1, 40), range(1, 6)):
        tiles = cut_sizes(rows, count)
        assert sum(tiles) == rows and max(tiles) - min(tiles) <= 1


@pytest.mark.parametrize("count", [2, 3, 4])
def test_transfers_hide_behind_products_that_take_as_long(count: int) -> None:
    names = "abcd"[:count]
    # A tile travels for 12 / count seconds, and takes 15 / count on each device.
    for collective in (gather, reduce_scatter):
        done = collective(ring_of(names), [0.0] * count, [15.0] * count)
        assert done == pytest.approx([15.0] * count)
        # Without overlap all transfers are paid besides.
        plain = collective(ring_of(names, overlap=False), [0.0] * count, [15.0] * count)
        assert plain == pytest.approx([15.0 + 12 * (count - 1) / count] * count)


def test_a_gather_whose_link_is_slow_waits_for_each_tile() -> None:
    # 4 rows each: a tile travels for 4 s, a product takes 1 s: tiles come at 4 and 8 s.
    assert gather(ring_of("abc"), [0.0] * 3, [3.0] * 3) == pytest.approx([9.0] * 3)
    # The first product is done at 1 s; what arrives at 5 s is added and sent on, arrives at 9 s.
    assert reduce_scatter(ring_of("abc"), [0.0] * 3, [3.0] * 3) == pytest.approx([9.0] * 3)


def test_a_straggler_holds_up_those_that_need_its_tile() -> None:
    done = gather(ring_of("ab"), [10.0, 0.0], [2.0, 2.0])
    # b gets the tile of a at 16 s; a gets that of b at 6 s, and computes its own first.
    assert done == pytest.approx([12.0, 17.0])


def test_the_order_of_a_sum_is_that_of_the_ring() -> None:
    ring = ring_of("abc")
    reduce_scatter(ring, [0.0] * 3, [3.0] * 3)
    sends = [(span.device, span.receiver) for span in ring.lanes.spans if span.receiver]
    assert sends == [("a", "b"), ("b", "c"), ("c", "a")] * 2


def test_messages_carry_each_tile_to_all() -> None:
    ring = ring_of("abc", rows=7)
    gather(ring, [0.0] * 3)
    sent = sum(span.bytes for span in ring.lanes.spans)
    assert sent == pytest.approx(7 * 2)  # every tile to two others
    star = ring_of("abc", rows=7)
    all_reduce_star(star, [0.0] * 3)
    assert sum(span.bytes for span in star.lanes.spans) == pytest.approx(7 * 4)


def test_tiles_without_rows_are_not_sent() -> None:
    ring = ring_of("abcd", rows=1, latency=0.5)
    done = gather(ring, reduce_scatter(ring, [0.0] * 4))
    spans = [span for span in ring.lanes.spans if span.receiver]
    assert [span.bytes for span in spans] == [1.0] * 6
    # Three hops to sum the only tile, which is d's, and three to hand it to the others: c is the last to get it.
    assert max(done) == pytest.approx(6 * 1.5) and done[2] == max(done)


def test_a_sum_of_one_row_goes_around_in_slices_of_columns() -> None:
    done = all_reduce_ring(ring_of("abcd", rows=1, latency=0.5), [0.0] * 4)
    assert done == pytest.approx([6 * (0.25 + 0.5)] * 4)
    assert max(all_reduce_star(ring_of("abcd", rows=1, latency=0.5), [0.0] * 4)) == pytest.approx(2 * 1.5)


def test_a_missing_link_is_noted() -> None:
    lanes = Lanes({("a", "b"): Link("a", "b", 1.0, 0.0)})
    gather(Ring(("a", "b"), lanes, (1, 1), 2.0), [0.0, 0.0])
    assert list(lanes.missing) == [("b", "a")]


def written(group: Group, rows: int, width: int) -> Counter[tuple[str, str]]:
    """(Sender, receiver) → bytes that the programs send, one a number."""
    sent = Counter[tuple[str, str]]()
    for name, program in zip(group.members, group.programs, strict=True):
        for item in program:
            if isinstance(item, Send):
                sent[name, item.device] += sum(_size(value, rows, width) for value in item.values)
    return sent


def _size(name: str, rows: int, width: int) -> int:
    """Of `x`, of its tile `x.rows1of3`, of its slice `x.columns1of3`, of the sum `….to2` of such."""
    piece = name.split(".to")[0].rpartition(".")[2]
    for axis, whole, other in (("rows", rows, width), ("columns", width, rows)):
        if piece.startswith(axis):
            place, _, count = piece.removeprefix(axis).partition("of")
            return cut_sizes(whole, int(count))[int(place)] * other
    return rows * width


def _tiled(group: Group) -> None:
    count = group.count
    group.reduce_scatter(
        lambda tile: tile_name("t", tile, count), lambda rank, tile: tile_name(f"p{rank}", tile, count)
    )
    group.gather(lambda tile: (tile_name("t", tile, count),))


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(
    ("write", "price"),
    [
        (_tiled, lambda ring, ready: gather(ring, reduce_scatter(ring, ready))),
        (lambda group: group.all_reduce_ring("t", [f"p{rank}" for rank in range(group.count)], 1), all_reduce_ring),
        (lambda group: group.all_reduce_star("t", [f"p{rank}" for rank in range(group.count)]), all_reduce_star),
    ],
    ids=["tiles", "ring", "star"],
)  # fmt: skip
@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_programs_send_is_what_is_priced(
    count: int, write: Callable[[Group], None], price: Callable[[Ring, list[float]], object], rows: int
) -> None:
    width, group = 12, Group.of("abcd"[:count])
    write(group)
    ring = ring_of("abcd"[:count], rows=rows, bytes_per_row=width)
    price(ring, [0.0] * count)
    priced = Counter[tuple[str, str]]()
    for span in ring.lanes.spans:
        if span.receiver:
            priced[span.device, span.receiver] += round(span.bytes)
    assert +written(group, rows, width) == priced
