from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partc.runtime.client.stop_search import StopSearch
from partc.serve.answer import Answer
from tests.runtime.test_text import Bytes

TEXTS = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


def _cut(text: str, stops: list[str]) -> str:
    """The definition: up to the first place where any of them begins."""
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


@given(st.lists(TEXTS), STOPS)
def test_text_ends_before_the_first_stop_text(pieces: list[str], stops: list[str]) -> None:
    search, told = StopSearch(stops), ""
    for piece in pieces:
        told += search.push(piece)
        assert _cut("".join(pieces), stops).startswith(told)
        if search.is_found:
            break
    assert told + ("" if search.is_found else search.finish()) == _stopped(pieces, stops)
    assert search.is_found == any(stop in "".join(pieces) for stop in stops)


def _stopped(pieces: list[str], stops: list[str]) -> str:
    """As far as the text had come when the first stop text was complete."""
    text = ""
    for piece in pieces:
        text += piece
        if any(stop in text for stop in stops):
            return _cut(text, stops)
    return text


def test_what_cannot_begin_a_stop_text_is_not_held_back() -> None:
    search = StopSearch(["END"])
    assert [search.push(piece) for piece in ("one", "E", "N", "x", "EN", "D", "more")][:6] == [
        "one", "", "", "ENx", "", "",
    ]  # fmt: skip
    assert search.is_found


def _answer(stops: list[str]) -> Answer:
    return Answer(Bytes().stream([]), StopSearch(stops), frozenset([0]))


def test_an_end_token_is_counted_and_is_no_text() -> None:
    answer = _answer([])
    assert [answer.push(token) for token in (*b"ab", 0)] == ["a", "b", ""]
    assert answer.end("stop") == ""
    assert (answer.tokens, answer.text, answer.finish) == (3, ["a", "b", "", "", ""], "stop")


def test_text_that_was_held_back_comes_at_the_end() -> None:
    answer = _answer(["bc"])
    assert [answer.push(token) for token in b"ab"] == ["a", ""]
    assert answer.end("length") == "b"
    assert answer.finish == "length"


def test_nothing_comes_after_a_stop_text() -> None:
    answer = _answer(["b"])
    assert [answer.push(token) for token in b"abc"] == ["a", "", ""]
    assert answer.end("length") == ""
    assert (answer.finish, answer.tokens) == ("stop", 2)


def test_a_piece_that_completes_half_a_character() -> None:
    answer = _answer([])
    assert [answer.push(token) for token in "é".encode()] == ["", "é"]
