"""Rings as programs use them: threads, streams, ends, and what goes wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partc
from partc.errors import BundleError, RunError
from partc.runtime.client.launch import launch_local
from tests.runtime.bundles import language_model
from tests.serve.server import make_build

pytestmark = pytest.mark.serve  # its build has a tokenizer
LONG = 800
"""Tokens of an answer that does not end while a test looks at it."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_build(tmp_path_factory.mktemp("ring"))


@pytest.fixture(scope="module")
def ring(build: Path) -> Iterator[partc.Ring]:
    with partc.Ring(build, chat_template=build.parent / "template.jinja") as made:
        yield made


def test_an_answer_is_that_of_the_client(build: Path, ring: partc.Ring) -> None:
    with launch_local(build) as local, local.client() as client:
        expected = client.generate("abc", 12, ignore_eos=True)
    answer = ring.generate("abc", 12, ignore_eos=True)
    assert (answer.text, answer.tokens) == (expected.texts[0], list(expected.tokens[0]))
    assert (answer.finish, answer.prompt) == ("length", list(expected.prompts[0]))
    assert answer.result is not None
    assert set(answer.result.timings) == set(ring.build.devices)


def test_token_ids_are_answered_with_text_as_well(ring: partc.Ring) -> None:
    text = ring.generate("abc", 8)
    ids = ring.generate(text.prompt, 8)
    assert (ids.text, ids.tokens) == (text.text, text.tokens)


def test_a_list_is_answered_with_a_list(ring: partc.Ring) -> None:
    one, two = ring.generate(["abc", "bcd"], 6)
    assert [one.tokens, two.tokens] == [ring.generate(text, 6).tokens for text in ("abc", "bcd")]
    assert [each.tokens for each in ring.generate([one.prompt, two.prompt], 6)] == [one.tokens, two.tokens]
    assert not ring.generate([], 6)


def test_pieces_are_the_answer(ring: partc.Ring) -> None:
    whole = ring.generate("abc", 20, likely=3)
    with ring.stream("abc", 20, likely=3) as stream:
        pieces = list(stream)
    assert "".join(piece.text for piece in pieces) == whole.text == stream.result().text
    assert [piece.token for piece in pieces if piece.token is not None] == whole.tokens
    assert [likely[0].token for likely in whole.likely] == whole.tokens
    assert {len(likely) for likely in whole.likely} == {3}
    assert list(stream) == []  # each piece once


def test_a_stop_text_ends_an_answer_before_it(ring: partc.Ring) -> None:
    text = ring.generate("abc", LONG // 8).text
    stop = text[10:13]
    answer = ring.generate("abc", LONG, stop=["@", stop])
    assert (answer.text, answer.finish) == (text[: text.find(stop)], "stop")
    assert answer.result is None  # the rest was cancelled


def test_a_stop_text_that_only_begins_is_told_in_the_end(ring: partc.Ring) -> None:
    text = ring.generate("abc", 8).text
    with ring.stream("abc", 8, stop=text[-1] + "@") as stream:
        pieces = list(stream)
    assert "".join(piece.text for piece in pieces) == text
    assert (pieces[-1].token, pieces[-1].text) == (None, text[-1])


def test_a_stop_token_ends_an_answer(ring: partc.Ring) -> None:
    tokens = ring.generate("abc", 8).tokens
    answer = ring.generate("abc", 8, stop=tokens[3])
    assert (answer.tokens, answer.finish) == (tokens[: tokens.index(tokens[3]) + 1], "stop")


def test_threads_share_a_ring(ring: partc.Ring) -> None:
    texts = ["abc", "bcd", "cde", "def", "efg", "fgh"]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda text: ring.generate(text, 30, seed=4, temperature=0.7).tokens, texts))
    assert found == [ring.generate(text, 30, seed=4, temperature=0.7).tokens for text in texts]


def test_leaving_a_stream_cancels_its_request(ring: partc.Ring) -> None:
    with ring.stream("abc", LONG) as stream:
        next(iter(stream))
    with pytest.raises(RunError, match="cancel"):
        stream.result(10)
    assert len(stream.told) < LONG
    assert ring.generate("abc", 4).tokens


def test_conversations_take_the_template_of_the_model(ring: partc.Ring) -> None:
    turn = ring.chat([{"role": "user", "content": "bcd"}], 6)
    with ring.stream("<s>ubcd</t><s>a", 6, stop=2) as plain:
        assert plain.result().tokens == turn.tokens
    with ring.chat_stream([{"role": "user", "content": "bcd"}], 6) as stream:
        assert "".join(piece.text for piece in stream) == turn.text
    with pytest.raises(RunError, match="role") as caught:
        ring.chat([{"content": "bcd"}])
    assert caught.value.where


@pytest.mark.parametrize(
    ("options", "where"),
    [({"temperature": -1.0}, "temperature"), ({"top_p": 2.0}, "top_p"), ({"likely": 99}, "likely")],
)
def test_options_out_of_range_are_named(ring: partc.Ring, options: dict[str, float], where: str) -> None:
    with pytest.raises(RunError) as caught:
        ring.generate("abc", 4, **options)  # type: ignore[call-overload]
    assert where in str(caught.value)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"max_new_tokens": "3"}, "max_new_tokens"),
        ({"max_new_tokens": 1.5}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"max_new_tokens": 2**70}, "max_new_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"stop": [2**70]}, "stop"),
        ({"stop": [None]}, "stop"),
        ({"stop": 1.5}, "stop"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"drafts": None}, "drafts"),
        ({"expected": 5}, "expected"),
        ({"expected": ["x"]}, "expected"),
        ({"inputs": 3}, "inputs"),
        ({"temprature": 0.9}, "temprature"),
        ({"max_tokens": 3}, "max_tokens"),
    ],
)
def test_options_of_other_types_end_their_own_request_alone(
    ring: partc.Ring, options: dict[str, Any], where: str
) -> None:
    with ThreadPoolExecutor() as pool:
        other = pool.submit(ring.generate, "abc", 40, ignore_eos=True)
        with pytest.raises(RunError) as caught:
            ring.generate("abc", **{"max_new_tokens": 4, **options})
        assert caught.value.where == where
        assert len(other.result(30).tokens) == 40


def test_numbers_of_numpy_are_numbers(ring: partc.Ring) -> None:
    plain = ring.generate("abc", 6, temperature=0.5, top_k=9, seed=3, stop=[1], ignore_eos=True)
    found = ring.generate(
        "abc", np.int64(6), temperature=np.float64(0.5), top_k=np.int32(9), seed=np.uint8(3),
        stop=np.array([1]), ignore_eos=np.True_,
    )  # type: ignore[call-overload]  # fmt: skip
    assert found.tokens == plain.tokens


def test_several_prompts_are_no_one_answer(ring: partc.Ring) -> None:
    for prompts in (["abc", "bcd"], [[1, 2], [2, 3]]):
        with pytest.raises(RunError, match="several prompts have several answers"):
            list(ring.stream(prompts))  # type: ignore[arg-type]


def test_nothing_is_asked(ring: partc.Ring) -> None:
    with pytest.raises(RunError, match="neither a prompt nor a tensor"):
        ring.submit([]).result()


def test_what_a_model_of_texts_does_not_do(build: Path, ring: partc.Ring) -> None:
    with pytest.raises(RunError, match="generates, and has no outputs of its own"):
        ring.encode("abc")
    with pytest.raises(RunError, match="generates, and has no outputs of its own"):
        ring.run()
    with pytest.raises(RunError, match="there is no runner 'foo'"):
        partc.Ring(build, runner="foo")  # type: ignore[arg-type]


def test_requests_that_the_plan_does_not_allow_fail_alone(ring: partc.Ring) -> None:
    with pytest.raises(RunError, match="max_sequence"):
        ring.generate("abc", 100_000)
    with pytest.raises(RunError, match="token"):
        ring.submit([[999]], max_new_tokens=2).result(10)
    assert ring.generate("abc", 4).tokens


def test_a_batch_is_one_request(build: Path, ring: partc.Ring) -> None:
    batch = [[4, 5], [6, 7, 8]]
    with launch_local(build) as local, local.client() as client:
        expected = client.generate(batch, 5)
    assert ring.submit(batch, max_new_tokens=5).result(10).tokens == expected.tokens


def test_a_ring_that_is_not_open_says_so(build: Path) -> None:
    ring = partc.Ring(build)
    for use in (lambda: ring.generate("abc"), lambda: ring.submit([[4]]), lambda: ring.chat([])):
        with pytest.raises(RunError, match="not open"):
            use()
    ring.close()
    with ring:
        pass
    with pytest.raises(RunError, match="not open"):
        ring.generate("abc")


def test_closing_ends_what_is_in_flight(build: Path) -> None:
    with partc.Ring(build) as ring:
        stream = ring.stream("abc", LONG)
        next(iter(stream))
    with pytest.raises(RunError, match="closed"):
        stream.result(10)


def test_no_build(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a build"):
        partc.Ring(tmp_path / "absent")


def test_a_ring_that_does_not_stand_raises_what_its_device_said(tmp_path: Path) -> None:
    build = language_model("null").write(tmp_path / "build")
    with pytest.raises(RunError), partc.Ring(build, connect="127.0.0.1:9", floor_s=0.3):
        pytest.fail("it stands")


def test_a_running_ring_is_reached(build: Path) -> None:
    with launch_local(build) as local, partc.Ring(build, connect=local.source) as ring:
        assert ring.generate("abc", 5).tokens


def test_a_source_that_is_lost_ends_requests(build: Path) -> None:
    with (
        launch_local(build, restart=False) as local,
        partc.Ring(build, connect=local.source, linger_s=0.5) as ring,
    ):
        stream = ring.stream("abc", LONG)
        next(iter(stream))
        os.kill(local.pids[ring.build.source], signal.SIGKILL)
        with pytest.raises(RunError):
            stream.result(30)
        with pytest.raises(RunError):
            ring.generate("abc", 4)


def test_encoders_and_tensors(tmp_path: Path) -> None:
    from tests.runtime.bundles import graph_model

    with partc.Ring(graph_model().write(tmp_path / "build")) as ring:
        role = ring.build.roles[ring.build.source]
        shapes = {name: role.types[name] for name in role.inputs}
        inputs = {
            name: np.zeros([size if isinstance(size, int) else 1 for size in kind.shape], kind.dtype)
            for name, kind in shapes.items()
        }
        assert set(ring.run(inputs)) == set(role.outputs)
        with pytest.raises(RunError, match="does not generate"):
            ring.generate("abc")


def test_awaited(build: Path) -> None:
    async def use() -> None:
        async with partc.AsyncRing(build, chat_template=build.parent / "template.jinja") as ring:
            one, two = await asyncio.gather(ring.generate("abc", 8), ring.generate("bcd", 8))
            assert one.tokens != two.tokens
            assert "".join([piece.text async for piece in ring.stream("abc", 8)]) == one.text
            task = asyncio.create_task(ring.generate("abc", LONG))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async for _ in ring.stream("abc", LONG):
                break
            assert (await ring.generate("abc", 8)).tokens == one.tokens
            assert (await ring.chat([{"role": "user", "content": "b"}], 4)).tokens
            with pytest.raises(RunError, match="max_sequence"):
                await ring.generate("abc", 100_000)

    asyncio.run(use())


def test_nothing_is_left_behind(build: Path) -> None:
    before, others = threading.active_count(), _children()
    with partc.Ring(build) as ring:
        pids = _children() - others
        ring.generate("abc", 4)
    assert threading.active_count() == before
    assert len(pids) == 3
    assert not pids & _children()


def _children() -> set[str]:
    tasks = Path("/proc/self/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}
