"""Fields that widely used clients send, at the values that they send always: none is unknown, none changes an answer.

The tables are of (client, field, value); a value that would change the answer is refused by the field's name.
"""

from __future__ import annotations

import http.client
import importlib
import importlib.util
import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.serve.server import JSON, MODEL, Server, serving

pytestmark = pytest.mark.serve

ST = "SillyTavern"
"""Its text completion with all samplers neutral."""
_ST_COMMON = {
    "max_new_tokens": 6, "typical_p": 1, "typical": 1, "min_p": 0, "repetition_penalty": 1, "frequency_penalty": 0,
    "presence_penalty": 0, "top_k": 0, "skew": 0, "min_tokens": 0, "add_bos_token": True, "smoothing_factor": 0,
    "smoothing_curve": 1, "dry_allowed_length": 2, "dry_multiplier": 0, "dry_base": 1.75,
    "dry_sequence_breakers": '["\\n", ":", "\\"", "*"]', "dry_penalty_last_n": 0, "max_tokens_second": 0,
    "stopping_strings": ["zzz"], "stop": ["zzz"], "truncation_length": 2048, "ban_eos_token": False,
    "skip_special_tokens": True, "include_reasoning": True, "top_a": 0, "tfs": 1, "mirostat_mode": 0,
    "mirostat_tau": 5, "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [], "api_type": "generic",
    "api_server": "http://127.0.0.1:8000/v1", "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0,
    "top_n_sigma": 0, "min_keep": 0, "adaptive_target": -0.01, "adaptive_decay": 0.9,
}  # fmt: skip
_ST_OTHERS = {
    "rep_pen": 1, "rep_pen_range": 0, "repetition_penalty_range": 0, "guidance_scale": 1, "negative_prompt": "",
    "repeat_penalty": 1, "repeat_last_n": 0, "n_predict": 6, "num_predict": 6, "num_ctx": 2048, "mirostat": 0,
    "ignore_eos": False, "rep_pen_slope": 1, "sampler_seed": 5,
}  # fmt: skip
COMPLETIONS: dict[str, dict[str, Any]] = {
    f"{ST}, generic": {**_ST_COMMON, **_ST_OTHERS},
    f"{ST}, llama.cpp": {
        **_ST_COMMON, **_ST_OTHERS, "n": 1, "logit_bias": [], "grammar": "", "cache_prompt": True,
        "dry_sequence_breakers": ["\n", ":", '"', "*"],
    },
    f"{ST}, vLLM": {
        **_ST_COMMON, "n": 1, "ignore_eos": False, "spaces_between_special_tokens": True,
    },
    "OpenAI's libraries": {
        "best_of": 1, "echo": False, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "logprobs": None,
        "n": 1, "stop": None, "suffix": None, "user": "u", "top_p": 1,
    },
    "lm-evaluation-harness": {"stop": ["\n\n"], "top_p": 1, "seed": 5},
    "Continue": {"frequency_penalty": None, "presence_penalty": None, "stop": ["zzz"], "suffix": "", "raw": True},
    "vLLM's clients": {
        "min_p": 0.0, "top_k": -1, "repetition_penalty": 1.0, "length_penalty": 1.0, "use_beam_search": False,
        "early_stopping": False, "stop_token_ids": [], "include_stop_str_in_output": False, "ignore_eos": False,
        "min_tokens": 0, "skip_special_tokens": True, "spaces_between_special_tokens": True,
        "truncate_prompt_tokens": None, "prompt_logprobs": None, "add_special_tokens": True, "guided_json": None,
        "return_token_ids": False, "return_tokens_as_token_ids": False, "priority": 0, "request_id": "a",
        "logits_processors": None, "allowed_token_ids": None, "bad_words": [], "detokenize": True,
    },
}  # fmt: skip
CHATS: dict[str, dict[str, Any]] = {
    "OpenAI's libraries": {
        "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "logprobs": False, "n": 1, "stop": None,
        "modalities": ["text"], "parallel_tool_calls": True, "response_format": {"type": "text"}, "store": False,
        "service_tier": "auto", "metadata": {"a": "b"}, "user": "u", "safety_identifier": "s", "verbosity": "medium",
        "prompt_cache_key": "k", "tool_choice": "auto", "tools": [], "top_p": 1, "audio": None, "prediction": None,
    },
    "LangChain, LibreChat": {
        "n": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "stop": None, "user": "66f",
        "max_completion_tokens": 6, "logprobs": None, "parallel_tool_calls": None, "stream": False,
    },
    "Open WebUI": {
        "top_p": 1, "min_p": 0, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "stop": ["zzz"],
        "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5, "top_k": 0, "tfs_z": 1, "repeat_last_n": 64,
        "repeat_penalty": 1, "num_ctx": 2048, "num_keep": 24, "num_batch": 512, "num_thread": 2, "num_gpu": 0,
        "use_mmap": True, "use_mlock": True, "keep_alive": "5m", "session_id": "s", "chat_id": "c", "think": None,
    },
    "llama.cpp's page": {
        "timings_per_token": True, "return_progress": False, "reasoning_format": "auto", "dynatemp_range": 0,
        "dynatemp_exponent": 1, "top_k": 0, "top_p": 1, "min_p": 0, "xtc_probability": 0, "xtc_threshold": 0.1,
        "typ_p": 1, "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
        "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "samplers": [],
        "cache_prompt": True, "id_slot": -1, "n_probs": 0,
    },
    "Continue": {
        "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "stop": ["zzz"], "stream": False, "prediction": None,
    },
    "aider, LiteLLM": {"stream": False, "user": "u", "tools": None, "tool_choice": None, "response_format": None,
                       "functions": [], "function_call": None, "extra_headers": None, "num_ctx": 2048},
    "Vercel's AI SDK": {
        "user": "u", "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "response_format": None,
        "stop": None, "reasoning_effort": None, "verbosity": None, "tools": None, "tool_choice": None,
    },
    "vLLM's clients": {
        "repetition_penalty": 1.0, "min_p": 0, "ignore_eos": False, "add_generation_prompt": True, "echo": False,
        "continue_final_message": False, "add_special_tokens": False, "documents": None, "chat_template": None,
        "chat_template_kwargs": None, "mm_processor_kwargs": None, "separate_reasoning": True,
    },
}  # fmt: skip
REFUSED: list[tuple[str, str, Any]] = [
    (ST, "repetition_penalty", 1.1), (ST, "min_p", 0.01), (ST, "dry_multiplier", 0.75), (ST, "n_predict", 7),
    (ST, "stopping_strings", ["another"]), (ST, "ignore_eos", True), (ST, "custom_token_bans", "5,6"),
    (ST, "samplers", ["top_k", "temperature"]), (ST, "xtc_probability", 0.5), (ST, "mirostat_mode", 2),
    (ST, "sampler_seed", 6), (ST, "temperature_last", True), (ST, "grammar", "root ::= x"),
    ("llama.cpp's page", "cache_prompt", False), ("llama.cpp's page", "reasoning_format", "deepseek"),
    ("OpenAI's libraries", "echo", True), ("OpenAI's libraries", "response_format", {"type": "json_object"}),
    ("OpenAI's libraries", "logit_bias", {"5": 1}), ("OpenAI's libraries", "store", True),
    ("vLLM's clients", "min_tokens", 5), ("vLLM's clients", "guided_json", {}), ("vLLM's clients", "min_p", True),
    ("vLLM's clients", "stop_token_ids", [5]), ("Open WebUI", "think", True),
]  # fmt: skip
CLIENTS = [
    *[pytest.param("/v1/completions", fields, id=f"text: {name}") for name, fields in COMPLETIONS.items()],
    *[pytest.param("/v1/chat/completions", fields, id=f"chat: {name}") for name, fields in CHATS.items()],
]


def _body(path: str) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "seed": 5}
    said = {"messages": [{"role": "user", "content": "abc"}]} if "chat" in path else {"prompt": "abc"}
    return {**asked, **said}


@pytest.mark.parametrize(("path", "fields"), CLIENTS)
def test_what_clients_always_send_changes_nothing(server: Server, path: str, fields: dict[str, Any]) -> None:
    expected = server.post(path, _body(path))[1]["choices"]
    status, answer = server.post(path, {**_body(path), **fields})
    assert status == 200, answer
    assert answer["choices"] == expected
    for name, value in fields.items():
        with_stop = {"stop": ["zzz"]} if name == "stopping_strings" else {}
        _check_alone(path, {**_body(path), **with_stop, name: value})


def _check_alone(path: str, body: dict[str, Any]) -> None:
    """A body with one of the fields passes, too; raises where it does not."""
    from partc.serve.bodies import ChatBody, CompletionBody, read_body

    if "chat" in path:
        read_body(json.dumps(body).encode(), ChatBody)
    else:
        read_body(json.dumps(body).encode(), CompletionBody)


def test_the_lesser_of_two_bounds_holds_and_a_list_of_one_text_is_the_text() -> None:
    from partc.serve.bodies import ChatBody, read_body

    body = {**_body("/v1/chat/completions"), "stop": "x", "stopping_strings": ["x"]}
    for bounds, most in (
        ((2, 6), 2),
        ((6, 2), 2),
        ((-1, 6), 6),
        ((6, None), 6),
        ((-1, None), None),
        ((None, 6), 6),
    ):
        asked = dict(zip(("max_tokens", "max_completion_tokens"), bounds, strict=True))
        assert read_body(json.dumps({**body, **asked}).encode(), ChatBody).body.most_tokens == most


@pytest.mark.parametrize(("client", "name", "value"), REFUSED)
def test_a_value_that_would_change_the_answer_is_refused(
    server: Server, client: str, name: str, value: Any
) -> None:
    status, answer = server.post("/v1/completions", {**_body("/v1/completions"), name: value})
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "unsupported_parameter", name), client
    assert len(error["message"]) > len(f"{name}: "), "it says why, or what to send"


@pytest.mark.parametrize(
    ("module", "kind"),
    [("openai.types.chat.completion_create_params", "ChatBody"),
     ("openai.types.completion_create_params", "CompletionBody"),
     ("openai.types.embedding_create_params", "EmbeddingBody")],
)  # fmt: skip
def test_every_field_of_openais_library_is_known(module: str, kind: str) -> None:
    if importlib.util.find_spec("openai") is None:
        pytest.skip("no openai")
    import msgspec

    from partc.serve import bodies

    found = importlib.import_module(module)
    params = getattr(found, "CompletionCreateParamsBase", None) or found.EmbeddingCreateParams
    names = set(typing.get_type_hints(params))
    struct = getattr(bodies, kind)
    known = {field.name for field in msgspec.structs.fields(struct)} | set(bodies._ABSENT[struct])
    assert len(names) >= 5
    assert names - known == set()


def test_no_field_is_in_two_tables() -> None:
    import msgspec

    from partc.serve import bodies, fields

    for struct, own in ((bodies.ChatBody, fields.CHAT), (bodies.CompletionBody, fields.COMPLETION),
                        (bodies.EmbeddingBody, fields.EMBEDDING)):  # fmt: skip
        tables = [set(fields.OPENAI), set(fields.OTHERS), set(own)]
        tables.append({field.name for field in msgspec.structs.fields(struct)})
        for index, one in enumerate(tables):
            for other in tables[index + 1 :]:
                assert not one & other
        assert all(entry.why for table in (fields.OPENAI, fields.OTHERS, own) for entry in table.values())


@pytest.fixture(scope="module")
def lenient(build: Path) -> Iterator[Server]:
    with serving(build, "--ignore-unknown-fields") as made:
        yield made


def _ask(server: Server, path: str, body: Mapping[str, Any]) -> tuple[int, str | None, str]:
    """Status, the header that tells what was ignored, and the text."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    connection.request("POST", path, json.dumps(body), JSON)
    answer = connection.getresponse()
    told = answer.getheader("partc-ignored-fields"), answer.read().decode()
    connection.close()
    return answer.status, *told


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_fields_are_ignored_and_told(lenient: Server, stream: bool) -> None:
    body = {
        **_body("/v1/completions"),
        "stream": stream,
        "min_p": 0.05,
        "foo": 1,
        "samplers": ["top_k"],
        "top_a": 0,
    }
    status, ignored, text = _ask(lenient, "/v1/completions", body)
    assert (status, ignored) == (200, "min_p, foo, samplers"), "top_a is neutral"
    plain = {**_body("/v1/completions"), "stream": stream}
    status, ignored, expected = _ask(lenient, "/v1/completions", plain)
    assert (status, ignored) == (200, None)
    if not stream:
        assert json.loads(text)["choices"] == json.loads(expected)["choices"]


def test_what_openais_api_promises_is_refused_all_the_same(lenient: Server) -> None:
    for name, value in (("response_format", {"type": "json_object"}), ("echo", True), ("temperature", 3)):
        status, _, text = _ask(lenient, "/v1/completions", {**_body("/v1/completions"), name: value})
        assert (status, json.loads(text)["error"]["param"]) == (400, name)
    move = {"ring": "build", "submodules": "1", "to": "b", "foo": 1}
    assert json.loads(_ask(lenient, "/ring/move", move)[2])["error"]["param"] == "foo"


def test_names_that_are_no_header_are_told_safely(lenient: Server) -> None:
    body = {**_body("/v1/completions"), "a\r\nset-cookie: b": 1, "é": 2, "x" * 200: 3}
    status, ignored, _ = _ask(lenient, "/v1/completions", body)
    assert status == 200
    assert ignored == f"a%0D%0Aset-cookie%3A%20b, %C3%A9, {'x' * 64}"


@pytest.mark.parametrize(
    "content", ["def f(x):", [{"type": "text", "text": "def f"}, {"type": "text", "text": "(x):"}]]
)
def test_a_prediction_is_a_text_or_parts_of_one(content: object) -> None:
    from partc.serve.bodies import ChatBody, read_body

    body = {
        "messages": [{"role": "user", "content": "a"}],
        "prediction": {"type": "content", "content": content},
    }
    found = read_body(json.dumps(body).encode(), ChatBody).body
    assert found.prediction is not None
    assert found.prediction.text == "def f(x):"
