"""Whole rings: processes on loopback, encrypted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from partc.errors import RunError
from partc.format.fields import FRAME_LIMIT
from partc.format.message_parts import Sampling
from partc.format.role import source_role
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing
from partc.runtime.client.results import Tokens
from partc.runtime.shell.limits import frame_limit
from tests.runtime.bundles import (
    EMBED,
    EOS,
    HEAD,
    LENGTH,
    TYPES,
    VOCABULARY,
    classifier,
    expected_tokens,
    graph_model,
    language_model,
)
from tests.runtime.runners import Runners

pytestmark = pytest.mark.ort

PROMPTS = [[1, 2, 5], [4], [7, 8, 9, 10, 11]]
COUNT = 12


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory, runners: Runners) -> Iterator[LocalRing]:
    build = language_model().write(tmp_path_factory.mktemp("ring") / "build")
    with runners.launch(build) as made:
        yield made


@pytest.fixture
def client(ring: LocalRing) -> Iterator[Client]:
    with ring.client() as made:
        yield made


def test_tokens_are_those_of_the_whole_model(client: Client) -> None:
    for prompt in PROMPTS:
        result = client.generate(prompt, COUNT, ignore_eos=True)
        assert result.tokens == [expected_tokens(prompt, COUNT)]
        assert result.finish == ["length"]
        assert result.prompts == [prompt]


def test_a_batch_of_unequal_prompts(client: Client) -> None:
    result = client.generate(PROMPTS, COUNT, ignore_eos=True)
    assert result.tokens == [expected_tokens(prompt, COUNT) for prompt in PROMPTS]


def test_requests_in_flight_are_as_alone(client: Client) -> None:
    """Five, of which three have slots; the rest wait."""
    prompts = [*PROMPTS, [2, 2], [16]]
    requests = [client.submit(prompt, max_new_tokens=COUNT, ignore_eos=True) for prompt in prompts]
    for request, prompt in reversed(list(zip(requests, prompts, strict=True))):
        assert request.result().tokens == [expected_tokens(prompt, COUNT)]


def test_sampling_is_as_alone(client: Client) -> None:
    sampling = Sampling(temperature=1.5, top_k=9, top_p=0.95, seed=3)
    alone = [client.generate(prompt, COUNT, sampling, ignore_eos=True).tokens for prompt in PROMPTS]
    requests = [client.submit(p, max_new_tokens=COUNT, sampling=sampling, ignore_eos=True) for p in PROMPTS]
    assert [request.result().tokens for request in requests] == alone
    assert len({tuple(tokens[0]) for tokens in alone}) == 3
    batch = client.generate(PROMPTS, COUNT, sampling, ignore_eos=True)
    assert batch.tokens[0] == alone[0][0]


def test_sequences_end_each_for_itself(client: Client) -> None:
    whole = [expected_tokens(prompt, COUNT) for prompt in PROMPTS]
    wanted = [tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens for tokens in whole]
    assert len({len(tokens) for tokens in wanted}) == 3, "the test wants three different ends"
    seen: list[Tokens] = []
    result = client.generate(PROMPTS, COUNT, on_token=seen.append)
    assert result.tokens == wanted
    assert result.finish == ["stop" if tokens[-1] == EOS else "length" for tokens in wanted]
    streamed = [[step.tokens[row] for step in seen if step.tokens[row] is not None] for row in range(3)]
    assert streamed == wanted


def test_stop_tokens(client: Client) -> None:
    whole = expected_tokens(PROMPTS[1], COUNT)
    result = client.generate(PROMPTS[1], COUNT, stop=[whole[4]], ignore_eos=True)
    assert result.tokens == [whole[: whole.index(whole[4]) + 1]]
    assert result.finish == ["stop"]


def test_trace_shows_what_crosses_each_link(client: Client) -> None:
    result = client.generate(PROMPTS[0], 2, ignore_eos=True, trace=True)
    crossings = {(item.peer, item.device, item.step): item.values for item in result.trace}
    links = {("a", "b"), ("a", "c"), ("b", "c"), ("c", "a"), ("c", "c")}
    assert set(crossings) == {(*link, step) for link in links for step in range(2)}
    assert len(result.trace) == len(crossings), "a residual travels once, and directly"
    assert np.array_equal(crossings["a", "c", 0]["embed"][0], EMBED[PROMPTS[0]])
    assert int(crossings["c", "c", 1]["logits"].argmax()) == result.tokens[0][1], "what is sampled from"
    assert crossings["c", "a", 1]["token"].tolist() == [result.tokens[0][1]]


def test_trace_of_half_precision_logits(tmp_path: Path, runners: Runners) -> None:
    model = language_model("null")
    head = model.devices["c"]
    head.values = {**head.values, "logits": ("float16", ["batch", 1, VOCABULARY])}
    with runners.launch(model.write(tmp_path / "build")) as ring, ring.client() as client:
        result = client.generate(PROMPTS[0], 2, ignore_eos=True, trace=True)
        sampled = [item.values["logits"] for item in result.trace if item.peer == item.device]
        assert [(array.dtype.name, array.shape) for array in sampled] == [("float16", (1, 1, VOCABULARY))] * 2
        assert [int(array.argmax()) for array in sampled] == result.tokens[0], "what is sampled from"


def test_a_long_generation(tmp_path: Path, runners: Runners) -> None:
    """Its timings do not fit into one frame of the source's."""
    count = 1100
    build = language_model("null", max_sequence=count + 1, max_batch=1).write(tmp_path / "build")
    assert frame_limit(source_role(build)) == FRAME_LIMIT
    with runners.launch(build, insecure=True) as ring, ring.client() as client:
        result = client.generate([1], count, ignore_eos=True)
        assert result.timings["c"].column("step").tolist() == list(range(count))
        assert result.timings["c"].table.nbytes > FRAME_LIMIT
        assert result.timings["a"].table.shape[0] == count


def test_timings_of_every_device(client: Client) -> None:
    result = client.generate(PROMPTS[0], 5, ignore_eos=True)
    assert set(result.timings) == {"a", "b", "c"}
    for timings in result.timings.values():
        assert timings.column("step").tolist() == [0, 1, 2, 3, 4]
        assert (timings.column("compute_s") > 0).all()
        assert timings.column("wait_s:nobody").tolist() == [0] * 5
    assert result.timings["a"].column("wait_s:c").min() > 0
    assert result.timings["c"].column("received_bytes")[0] == 2 * EMBED[PROMPTS[0]].nbytes


def test_cancel_and_go_on(client: Client) -> None:
    requests = [client.submit(PROMPTS[0], max_new_tokens=LENGTH - 3, ignore_eos=True) for _ in range(5)]
    requests[0].cancel()
    requests[4].cancel()
    with pytest.raises(RunError, match="cancelled"):
        requests[4].result()
    assert requests[1].result().tokens == [expected_tokens(PROMPTS[0], LENGTH - 3)]
    assert client.generate(PROMPTS[1], COUNT, ignore_eos=True).tokens == [expected_tokens(PROMPTS[1], COUNT)]


def test_two_clients(ring: LocalRing) -> None:
    with ring.client() as one, ring.client() as two:
        first = one.submit(PROMPTS[0], max_new_tokens=COUNT, ignore_eos=True)
        second = two.submit(PROMPTS[1], max_new_tokens=COUNT, ignore_eos=True)
        assert second.result().tokens == [expected_tokens(PROMPTS[1], COUNT)]
        assert first.result().tokens == [expected_tokens(PROMPTS[0], COUNT)]


def test_a_client_that_leaves_frees_its_slots(ring: LocalRing) -> None:
    with ring.client() as gone:
        for _ in range(8):
            gone.submit(PROMPTS[0], max_new_tokens=LENGTH - 3, ignore_eos=True)
    with ring.client() as client:
        assert client.generate(PROMPTS[0], 3, ignore_eos=True).tokens == [expected_tokens(PROMPTS[0], 3)]


@pytest.mark.parametrize(
    ("prompts", "count", "message"),
    [
        ([1] * 20, 5, f"20 tokens and 5 new ones are more than max_sequence, {LENGTH}"),
        ([1] * 200_000, 5, "more than max_sequence"),
        ([[1]] * 4, 1, "4 prompts in one request, at most 3"),
        ([[1], []], 1, "the prompt is empty"),
        ([99], 1, "token 99 is not below vocab_size"),
        ([[1], [2, -3]], 1, "token -3 is below 0"),
        ([], 1, "neither a prompt nor a tensor"),
        ([1], 0, "at least one token"),
        ("a text", 1, "no tokenizer"),
    ],
)
def test_too_much(client: Client, prompts: list[int], count: int, message: str) -> None:
    with pytest.raises(RunError, match=message):
        client.generate(prompts, count)
    assert client.generate([1], 2, ignore_eos=True).tokens == [expected_tokens([1], 2)]


def test_stop_tokens_beyond_a_header(client: Client) -> None:
    with pytest.raises(RunError, match="at most 65536 are allowed") as caught:
        client.generate([1], 2, stop=range(60_000))
    assert caught.value.hint == "send shorter prompts, and fewer stop tokens"
    with pytest.raises(RunError, match="token -1 is below 0"):
        client.generate([1], 2, stop=[-1])
    assert client.generate([1], 2, ignore_eos=True).tokens == [expected_tokens([1], 2)]


def test_a_callback_that_fails(client: Client) -> None:
    """Its request is cancelled; the others lose nothing."""

    def fails(_: Tokens) -> None:
        raise ZeroDivisionError

    count = LENGTH - 3
    other = client.submit(PROMPTS[0], max_new_tokens=count, ignore_eos=True)
    bad = client.submit(PROMPTS[0], max_new_tokens=count, ignore_eos=True, on_token=fails)
    time.sleep(0.2)  # so that the messages of both lie ready at once
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert other.result(5.0).tokens == [expected_tokens(PROMPTS[0], count)]
    with pytest.raises(RunError, match=r"ZeroDivisionError\(\) was raised"):
        bad.result()
    assert client.generate([1], 2, ignore_eos=True).tokens == [expected_tokens([1], 2)]


def test_tensors_are_not_for_generation(client: Client) -> None:
    with pytest.raises(RunError, match="takes prompts"):
        client.run({"input_ids": np.ones((1, 3), np.int64)})


def test_insecure_on_loopback(tmp_path: Path, runners: Runners) -> None:
    build = language_model().write(tmp_path / "build")
    with runners.launch(build, insecure=True) as ring, ring.client() as client:
        assert client.generate(PROMPTS, 4, ignore_eos=True).tokens == [expected_tokens(p, 4) for p in PROMPTS]


def test_a_graph_of_one_step(tmp_path: Path, runners: Runners) -> None:
    build = graph_model().write(tmp_path / "build")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    with runners.launch(build) as ring, ring.client() as client:
        outputs = client.run({"x": array}).outputs
        assert np.array_equal(outputs["y"], (array + 1) * 2)
        assert np.array_equal(outputs["middle"], array + 1)
        with pytest.raises(RunError, match="rows is 7"):
            client.run({"x": np.zeros((7, 4), np.float32)})
        with pytest.raises(RunError, match="is float64, the plan says float32"):
            client.run({"x": array.astype(np.float64)})
        with pytest.raises(RunError, match="has the shape"):
            client.run({"x": np.zeros((3, 5), np.float32)})
        with pytest.raises(RunError, match="'x' is missing"):
            client.run({"z": array})
        with pytest.raises(RunError, match="takes tensors"):
            client.generate([1], 1)


def test_messages_as_large_as_the_plan_allows(tmp_path: Path, runners: Runners) -> None:
    """ZeroMQ limits the size of a frame with its encryption."""
    model = graph_model()
    model.dims = {"rows": 8192}
    build = model.write(tmp_path / "build")
    array = np.arange(8192 * 4, dtype=np.float32).reshape(8192, 4)
    assert frame_limit(source_role(build)) == array.nbytes > FRAME_LIMIT
    with runners.launch(build) as ring, ring.client() as client:
        outputs = client.run({"x": array}).outputs
        assert np.array_equal(outputs["y"], (array + 1) * 2)
        assert np.array_equal(outputs["middle"], array + 1)


def test_a_ring_of_one(tmp_path: Path, runners: Runners) -> None:
    model = graph_model()
    device = model.devices["a"]
    alone = {
        "a": type(device)(
            device.parts, {"prefill": "run part_0 (x) -> (middle)\nemit middle\n"}, device.values
        )
    }
    model.devices, model.outputs = alone, model.outputs[1:]
    with runners.launch(model.write(tmp_path / "build")) as ring, ring.client() as client:
        outputs = client.run({"x": np.zeros((1, 4), np.float32)}).outputs
        assert outputs["middle"].tolist() == [[1.0] * 4]


def test_a_classifier(tmp_path: Path, runners: Runners) -> None:
    with runners.launch(classifier().write(tmp_path / "build")) as ring, ring.client() as client:
        batch = client.encode(PROMPTS).outputs["logits"]
        for row, prompt in enumerate(PROMPTS):
            expected = (EMBED[prompt] + TYPES[0]).mean(axis=0) @ HEAD
            assert np.allclose(batch[row], expected, atol=1e-5)
            assert np.allclose(client.encode(prompt).outputs["logits"], expected, atol=1e-5)
        inputs = {"input_ids": np.array([[1, 2, 5, 0]]), "token_type_ids": np.array([[0, 1, 1, 0]])}
        expected = (EMBED[[1, 2, 5]] + TYPES[[0, 1, 1]]).mean(axis=0) @ HEAD
        result = client.run({**inputs, "length": np.array([3])})
        assert np.allclose(result.outputs["logits"], expected, atol=1e-5)
        expected = (EMBED[[1, 2, 5, 0]] + TYPES[[0, 1, 1, 0]]).mean(axis=0) @ HEAD
        assert np.allclose(client.run(inputs).outputs["logits"], expected, atol=1e-5)
        with pytest.raises(RunError, match=r"the lengths \[5\] do not fit"):
            client.run({**inputs, "length": np.array([5])})


@pytest.mark.hf
def test_text(tmp_path: Path, runners: Runners) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<end>": EOS, **{f"w{index}": index for index in range(VOCABULARY) if index != EOS}}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(["<end>"])
    build = language_model(tokenizer=made.to_str()).write(tmp_path / "build")
    with runners.launch(build) as ring, ring.client() as client:
        seen: list[Tokens] = []
        result = client.generate(["w1 w2 w5", "w4"], COUNT, on_token=seen.append)
        assert result.prompts == [[1, 2, 5], [4]]
        for row, prompt in enumerate(result.prompts):
            whole = expected_tokens(prompt, COUNT)
            wanted = whole[: whole.index(EOS) + 1] if EOS in whole else whole
            assert result.tokens[row] == wanted
            assert result.texts[row].split() == [f"w{token}" for token in wanted if token != EOS]
            assert "".join(step.texts[row] for step in seen) == result.texts[row]
        with pytest.raises(RunError, match="more than max_sequence"):
            client.generate("w1 " * 30, 1)
        with pytest.raises(RunError, match="300000 tokens"):
            client.generate("w1 " * 300_000, 1)


def test_shutdown(tmp_path: Path, runners: Runners) -> None:
    build = language_model().write(tmp_path / "build")
    with runners.launch(build) as ring, ring.client() as client:
        processes = [process.popen for process in ring._keeper.processes.values()]
        client.shutdown()
        assert [process.wait(5) for process in processes] == [0, 0, 0]
