"""Participants that have a key, but do not keep to the protocol: each is refused, and the ring goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from partc.errors import RunError
from partc.format.message_parts import Opening, Problem, Row, Sampling, TensorSpec
from partc.format.messages import Data, Error, Message, Refuse, Submit, Welcome
from partc.runtime.client.launch import LocalRing
from partc.runtime.core.events import Disconnected
from tests.runtime.bundles import HIDDEN, language_model
from tests.runtime.impostor import Impostor
from tests.runtime.null_tokens import null_tokens
from tests.runtime.runners import Runners


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model("null").write(tmp_path_factory.mktemp("impostors") / "build")


@pytest.fixture(scope="module")
def launched(build: Path, runners: Runners) -> Iterator[LocalRing]:
    with runners.launch(build, restart=False) as ring:
        yield ring


@pytest.fixture
def ring(launched: LocalRing) -> Iterator[LocalRing]:
    """The ring, which serves the next request whatever a test did."""
    yield launched
    with launched.client() as client:
        assert client.generate([1], 3, ignore_eos=True).tokens == [null_tokens((1,), 3)]


def test_a_device_with_another_name_than_its_key(build: Path, ring: LocalRing) -> None:
    with Impostor(build, "c", "a", ring.addresses["a"]) as other:
        answer = other.greet("b")
        assert isinstance(answer, Refuse)
        assert "the key of 'c' does not belong to 'b'" in answer.problem.message


def test_data_before_hello(build: Path, ring: LocalRing) -> None:
    with Impostor(build, "a", "b", ring.addresses["b"]) as other:
        other.send(data((Row(1, 0, 0, 0, 1),), ()))
        assert isinstance(other.greet("a"), Welcome), "what came before is ignored"


def data(rows: tuple[Row, ...], specs: tuple[TensorSpec, ...]) -> Data:
    """The first message of a prompt of two tokens."""
    return Data(
        session=1,
        epoch=0,
        seq=0,
        phase="prefill",
        dims={"batch": 1, "sequence": 2},
        rows=rows,
        values=specs,
        open=(Opening(rows[0].request, Sampling()),),
    )


ROW = Row(2**50, 0, 0, 0, 2)
GOOD = bytes(2 * HIDDEN * 4)


@pytest.mark.parametrize(
    ("spec", "frame", "message"),
    [
        (TensorSpec("hidden_1", "float16", (1, 2, HIDDEN)), GOOD[: len(GOOD) // 2], "is float16"),
        (TensorSpec("hidden_1", "float32", (1, 3, HIDDEN)), GOOD, "has the shape"),
        (TensorSpec("hidden_1", "float32", (1, 2, HIDDEN)), GOOD[:-4], "bytes"),
        (TensorSpec("hidden_2", "float32", (1, 2, HIDDEN)), GOOD, "not what prefill awaits"),
    ],
    ids=["dtype", "shape", "bytes", "value"],
)
def test_a_failed_check_ends_the_requests(
    build: Path, spec: TensorSpec, frame: bytes, message: str, ring: LocalRing
) -> None:
    with (
        ring.client() as client,
        Impostor(build, "a", "b", ring.addresses["b"]) as other,
    ):
        os.kill(ring.pids["c"], signal.SIGSTOP)
        requests = [client.submit([1, 2], max_new_tokens=3) for _ in range(3)]
        client.wait(requests, 0.3)
        assert isinstance(other.greet("a"), Welcome)
        other.send(data((ROW,), (spec,)), frame)
        client.wait(requests, 2.0)
        for request in requests:
            assert isinstance(request.outcome, RunError)
            assert message in request.outcome.message
            assert request.outcome.where == "a -> b"
        os.kill(ring.pids["c"], signal.SIGCONT)


def test_a_frame_beyond_the_cap_closes_the_connection(build: Path, ring: LocalRing) -> None:
    with Impostor(build, "client", "a", ring.addresses["a"]) as other:
        other.transport.send_frames("a", [bytes(10_000_000)])
        other.until(Disconnected)


@pytest.mark.parametrize(
    "message",
    [Welcome(name="client", incarnation=1, epoch=0, next=0, info={}), Refuse(problem=Problem("refused", ""))],
    ids=["welcome", "refuse"],
)
def test_answers_of_a_client_to_nothing(build: Path, message: Message, ring: LocalRing) -> None:
    with Impostor(build, "client", "a", ring.addresses["a"]) as other:
        assert isinstance(other.greet("client"), Welcome)
        other.send(message)
        answer = other.answer()
        assert isinstance(answer, Refuse)
        assert "answers a question that was not asked" in answer.problem.message


SUBMIT = Submit(
    ticket=bytes(16),
    prompts=((1,),),
    max_new_tokens=2,
    sampling=Sampling(),
    stop=(),
    ignore_eos=True,
    trace=False,
    values=(),
)


FIELDS: dict[str, Any] = msgspec.to_builtins(SUBMIT, builtin_types=(bytes,))
UNREADABLE: dict[str, tuple[Any, str]] = {
    "one field too many": ({**FIELDS, "another": 1}, "another"),
    "one field too few": ({name: value for name, value in FIELDS.items() if name != "stop"}, "stop"),
    "another type": ({**FIELDS, "prompts": "x"}, "prompts"),
    "a fraction for top_k": ({**FIELDS, "sampling": {"temperature": 1.0, "top_k": 2.5}}, "sampling.top_k"),
    "a fraction for seed": ({**FIELDS, "sampling": {"temperature": 1.0, "seed": 2.5}}, "sampling.seed"),
    "an extension": ({**FIELDS, "stop": msgspec.msgpack.Ext(1, b"x")}, "cannot be read"),
    "no kind": ({"prompts": []}, "kind"),
    "an unknown kind": ({"kind": "sleep"}, "sleep"),
    "another wire": ({"kind": "hello", "v": 3}, "wire version 3, this end speaks 2"),
    "no map": ([1, 2], "cannot be read"),
    "no text": (None, "cannot be read"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_refused(build: Path, ring: LocalRing, case: str) -> None:
    header, told = UNREADABLE[case]
    with Impostor(build, "client", "a", ring.addresses["a"]) as other:
        assert isinstance(other.greet("client"), Welcome)
        other.transport.send_frames("a", [msgspec.msgpack.encode(header)])
        answer = other.answer()
        assert isinstance(answer, Refuse)
        assert (answer.problem.cause, told in answer.problem.message) == ("refused", True), answer
        other.send(SUBMIT)
        assert not isinstance(other.answer(), Error | Refuse), "and it goes on"


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_a_device_sends_and_cannot_be_read_ends_the_requests(
    build: Path, ring: LocalRing, case: str
) -> None:
    header, told = UNREADABLE[case]
    with ring.client() as client, Impostor(build, "a", "b", ring.addresses["b"]) as other:
        os.kill(ring.pids["c"], signal.SIGSTOP)
        request = client.submit([1, 2], max_new_tokens=3)
        client.wait([request], 0.1)
        assert isinstance(other.greet("a"), Welcome)
        other.transport.send_frames("b", [msgspec.msgpack.encode(header)])
        client.wait([request], 2.0)
        os.kill(ring.pids["c"], signal.SIGCONT)
        assert isinstance(request.outcome, RunError)
        assert (request.outcome.where, told in request.outcome.message) == ("a -> b", True), request.outcome
