"""Templates in the manner of many families give what transformers gives, or are refused where it refuses.

`templates` has them, one a file: short ones, made for these tests, with what those of the families use of jinja2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from partc.serve.errors import ApiError
from partc.serve.template import Chat, Renderer

pytestmark = [pytest.mark.serve, pytest.mark.hf]

FAMILIES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent / "templates").glob("*.jinja"))
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
SYSTEM = {"role": "system", "content": "Be brief. /no_think <b>'\"&</b>"}
FIRST = {"role": "user", "content": "  What is 2 + 2?\n\n\nAnd größer? 你好"}
ANSWER = {"role": "assistant", "content": "<think>\nfour\n</think>\n\n4"}
SECOND = {"role": "user", "content": "Sum 1.5 and 2."}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call00001",
            "type": "function",
            "function": {"name": "add", "arguments": {"a": 1.5, "b": [2, None]}},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "add", "content": '{"sum": 3.5}'}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one question": [FIRST],
    "a system's word": [SYSTEM, FIRST],
    "two turns": [SYSTEM, FIRST, ANSWER, SECOND],
    "a call": [FIRST, ANSWER, SECOND, CALL, RESULT],
    "a call and its answer": [SECOND, CALL, RESULT, {"role": "assistant", "content": "3.5"}, FIRST],
    "the same side twice": [FIRST, SECOND],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Sum of zwei Größen <&>",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "number"},
                    "b": {"type": "array", "items": {"type": ["string", "null"]}},
                },
                "required": ["a"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]


def transformed(template: str, messages: list[dict[str, Any]], tools: Any, **variables: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    (text,), _ = render_jinja_template(
        conversations=[messages],
        tools=tools,
        chat_template=template,
        add_generation_prompt=True,
        **SPECIAL,
        **variables,
    )
    return str(text)


@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_are_those_of_transformers(name: str) -> None:
    told = refused = 0
    with Renderer(Chat(FAMILIES[name], special=SPECIAL)) as renderer:
        for messages in CONVERSATIONS.values():
            for tools in (None, TOOLS):
                for variables in ({}, {"enable_thinking": False, "reasoning_effort": "low"}):
                    try:
                        expected = transformed(FAMILIES[name], messages, tools, **variables)
                    except Exception:  # whatever a template does to messages that it was not made for
                        refused += 1
                        with pytest.raises(ApiError, match="the chat template refuses this"):
                            renderer.render(messages, tools, variables)
                        continue
                    told += 1
                    assert renderer.render(messages, tools, variables) == expected
    assert told >= 4, "a template that refuses everything tests nothing"
    assert told + refused == 24


def test_there_are_enough_families() -> None:
    assert len(FAMILIES) >= 20
    assert len(set(FAMILIES.values())) == len(FAMILIES)


def test_arguments_of_calls_reach_a_template_as_data() -> None:
    """Clients of OpenAI's API send them as a text with JSON; templates are written for data."""
    call = _with_arguments('{"a": 1.5, "b": [2, null]}')
    with Renderer(Chat(FAMILIES["glm"], special=SPECIAL)) as renderer:
        assert renderer.render([SECOND, call, RESULT]) == renderer.render([SECOND, CALL, RESULT])
    with Renderer(Chat("{{ messages[0].tool_calls[0].function.arguments }}")) as renderer:
        assert renderer.render([_with_arguments("{")]) == "{"


def _with_arguments(text: str) -> dict[str, Any]:
    function = {"name": "add", "arguments": text}
    return {**CALL, "tool_calls": [{"id": "call00001", "type": "function", "function": function}]}
