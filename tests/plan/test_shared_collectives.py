from __future__ import annotations

import itertools

import pytest

from partc.plan.problem import Link
from partc.plan.shared.collectives import (
    Ring,
    all_reduce_ring,
    all_reduce_star,
    gather,
    reduce_scatter,
    tile_rows,
)
from partc.plan.shared.lanes import Lanes


def ring_of(
    names: str, *, rows: int = 12, bytes_per_row: float = 1.0, latency: float = 0.0, overlap: bool = True
) -> Ring:
    """Links of 1 byte per second."""
    links = {(a, b): Link(a, b, 1.0, latency) for a, b in itertools.permutations(names, 2)}
    tiles = tuple(tile_rows(rows, len(names)))
    return Ring(tuple(names), Lanes(links), tiles, rows * bytes_per_row, overlap)


def test_tiles_hold_every_row_once_and_may_be_empty() -> None:
    assert tile_rows(7, 3) == [2, 2, 3]
    assert tile_rows(1, 3) == [0, 0, 1]
    for rows, count in itertools.product(range(1, 40), range(1, 6)):
        tiles = tile_rows(rows, count)
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
    done = all_reduce_ring(ring, [0.0] * 4)
    spans = [span for span in ring.lanes.spans if span.receiver]
    assert [span.bytes for span in spans] == [1.0] * 6
    # Three hops to sum the only tile, which is d's, and three to hand it to the others: c is the last to get it.
    assert max(done) == pytest.approx(6 * 1.5) and done[2] == max(done)
    assert max(all_reduce_star(ring_of("abcd", rows=1, latency=0.5), [0.0] * 4)) == pytest.approx(2 * 1.5)


def test_a_missing_link_is_noted() -> None:
    lanes = Lanes({("a", "b"): Link("a", "b", 1.0, 0.0)})
    gather(Ring(("a", "b"), lanes, (1, 1), 2.0), [0.0, 0.0])
    assert list(lanes.missing) == [("b", "a")]
