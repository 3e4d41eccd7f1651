"""Chat templates: what transformers makes of them, and what hostile ones may cost."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from partc.errors import ConfigError, RunError
from partc.serve import renderers
from partc.serve.errors import ApiError
from partc.serve.template import Chat, Renderer, read_chat

pytestmark = pytest.mark.serve

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief. <b>'\"&</b>"},
    {"role": "user", "content": "  What is 2 + 2?\n"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Und größer?"},
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "parameters": {"type": "object", "größe": [1, 2.5, None]}},
    }
]
TEMPLATES = {
    "turns": """{%- for message in messages %}
<|{{ message['role'] }}|>{{ message.content | trim }}<|end|>
    {% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}""",
    "roles renamed": """{{ bos_token }}{% for m in messages %}
{% set role = 'model' if m.role == 'assistant' else m.role %}
<start_of_turn>{{ role }}
{{ m['content'] }}<end_of_turn>
{% endfor %}""",
    "system first": """{% if messages[0].role == 'system' %}{% set system = messages[0].content %}
{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{% for m in rest %}{% if loop.last and system is defined %}<<{{ system }}>>{% endif %}
[{{ loop.index0 }}/{{ loop.length }}] {{ m.content }}{{ eos_token }}{% endfor %}""",
    "tools": """{% if tools is not none and tools %}{{ tools | tojson }}|{{ tools | tojson(indent=2) }}{% endif %}
{{ messages | tojson(ensure_ascii=True) }}{{ documents is none }}""",
    "loop controls": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}""",
    "namespace and macro": """{% macro show(m) -%}<{{ m.role }}>{{ m.content.split() | join('_') }}{%- endmacro %}
{% set ns = namespace(count=0) %}{% for m in messages %}{% set ns.count = ns.count + m.content | length %}{{ show(m) }}
{% endfor %}{{ ns.count }}""",
    "generation": """{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}
{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}""",
    "dates": "{{ strftime_now('%Y') }}{{ messages[0].content }}",
    "slices and tests": """{% for m in messages[::-1] %}{{ m.content[:4] ~ m.role.upper() }}
{% if m.role in ['user', 'tool'] and 'name' not in m %}{{ '%s-%d' % (m.role, loop.index) }}{% endif %}{% endfor %}""",
    "missing": """{{ nothing }}{{ messages[0].tool_calls }}
{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}""",
}


def render(template: str, messages: list[dict[str, Any]] = MESSAGES, **options: Any) -> str:
    with Renderer(Chat(template, special=SPECIAL)) as made:
        return made.render(messages, **options)


@pytest.mark.hf
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_prompts_are_those_of_transformers(name: str, tools: Any) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    variables = {"enable_thinking": False}
    expected, _ = render_jinja_template(
        conversations=[MESSAGES],
        tools=tools,
        chat_template=TEMPLATES[name],
        add_generation_prompt=True,
        **SPECIAL,
        **variables,
    )
    told = render(TEMPLATES[name], tools=tools, variables=variables)
    assert [told] == expected
    assert [render(TEMPLATES[name] + ".", tools=tools, variables=variables)] != expected


@pytest.mark.in_turns(4)
@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ '%1000000000d' % 1 }}",
        "{% for a in range(99999) %}{{ 'xxxxxxxxxx' * 100 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{{ raise_exception('no') }}",
        "{% if",
    ],
)
def test_hostile_templates_are_refused_soon(template: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ApiError, match="the chat template refuses this"):
        render(template)
    assert time.monotonic() - begun < 60  # two seconds of the processor, of which others may take most


def test_the_next_conversation_is_rendered_after_one_that_took_too_long() -> None:
    template = """{% for a in range(99999 if messages[0].content == 'slow' else 1) %}
{% for b in range(99999) %}{% endfor %}ok{% endfor %}"""
    with Renderer(Chat(template)) as made:
        with pytest.raises(ApiError, match="too long"):
            made.render([{"role": "user", "content": "slow"}])
        assert made.render([{"role": "user", "content": "fast"}]) == "ok"


def test_conversations_that_take_long_keep_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is rendered meanwhile, and more of their kind than may wait are refused at once."""
    monkeypatch.setattr(renderers, "PATIENT_S", 0.5)
    monkeypatch.setattr(renderers, "_MOST_PATIENT", 2)
    template = """{% for a in range(99999 if messages[0].content == 'slow' else 1) %}
{% for b in range(99999) %}{% endfor %}ok{% endfor %}"""
    with Renderer(Chat(template)) as made, ThreadPoolExecutor(5) as threads:
        slow = [threads.submit(_refusal, made) for _ in range(5)]
        assert made.render([{"role": "user", "content": "fast"}]) == "ok"
        assert not all(one.done() for one in slow), "they are still under way"
        refusals = [one.result() for one in slow]
    assert any("too long" in text for text in refusals)
    assert any("are under way" in text for text in refusals)


def _refusal(renderer: Renderer) -> str:
    with pytest.raises(ApiError) as refused:
        renderer.render([{"role": "user", "content": "slow"}])
    return refused.value.message


def test_templates_of_a_tokenizers_folder(tmp_path: Path) -> None:
    assert read_chat(tmp_path).template is None
    config = tmp_path / "tokenizer_config.json"
    named = [{"name": "default", "template": "A<|im_end|>"}, {"name": "tool_use", "template": "T"}]
    config.write_text(json.dumps({"chat_template": named, "eos_token": {"content": "</s>", "lstrip": False}}))
    chat = read_chat(tmp_path)
    assert (chat.template, chat.tool_template, chat.special) == ("A<|im_end|>", "T", {"eos_token": "</s>"})
    assert chat.ends == ("</s>", "<|im_end|>")
    with Renderer(chat) as made:
        assert made.render(MESSAGES, TOOLS) == "T"
        assert made.render(MESSAGES) == "A<|im_end|>"
    (tmp_path / "chat_template.jinja").write_text("F")
    assert read_chat(tmp_path).template == "F"
    with pytest.raises(ConfigError, match="no such file"):
        read_chat(tmp_path, tmp_path / "nothing")
    config.write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        read_chat(tmp_path)


def test_a_model_without_template() -> None:
    with Renderer(Chat(None)) as made, pytest.raises(ApiError, match="no chat template") as refused:
        made.render(MESSAGES)
    assert refused.value.code == "no_chat_template"
