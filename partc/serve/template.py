"""Chat templates: the messages of a conversation as the text of a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from partc.errors import ConfigError, RunError
from partc.format.plain_files import read_plain_text
from partc.serve.errors import ApiError
from partc.serve.renderers import Renderers

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|END_OF_TURN_TOKEN|>",
    "<|end_of_role|>", "<|end_of_text|>", "</s>", "<eos>", "<|return|>", "<|call|>", "[EOT]", "<turn|>",
)  # fmt: skip
"""Tokens with which families of models end a turn; the tokenizer's own end token often is another one."""


@dataclass(frozen=True)
class Chat:
    """What a tokenizer's folder says about conversations."""

    template: str | None
    """Template of jinja2; None: the model has none."""
    tool_template: str | None = None
    """Template for conversations with tools, where that is another one."""
    special: Mapping[str, str] = field(default_factory=dict)
    """`bos_token` and others → their texts."""

    @property
    def ends(self) -> tuple[str, ...]:
        """Texts of tokens that end a turn: the tokenizer's, and those that the template writes."""
        written = [token for token in _TURN_ENDS if self.template and token in self.template]
        own = [self.special["eos_token"]] if "eos_token" in self.special else []
        return tuple(dict.fromkeys([*own, *written]))


def read_chat(folder: Path, override: Path | None = None) -> Chat:
    """The template of a tokenizer's folder, or that of a file instead.

    Raises:
        RunError: a file of the tokenizer is damaged.
        ConfigError: the file of the template cannot be read.
    """
    config = {**_json(folder / "special_tokens_map.json"), **_json(folder / "tokenizer_config.json")}
    special = {name: text for name in _SPECIAL if (text := _text(config.get(name)))}
    if override is not None:
        hint = "--chat-template takes a file with a template of jinja2"
        return Chat(read_plain_text(override, ConfigError, hint), None, special)
    named = config.get("chat_template")
    templates = {"default": named} if isinstance(named, str) else _named(named)
    if (folder / "chat_template.jinja").is_file():
        templates["default"] = (folder / "chat_template.jinja").read_text()
    default = templates.get("default")
    return Chat(default, templates.get("tool_use"), special)


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose content is text; lists of parts are joined, and the arguments of calls are data.

    Raises:
        ApiError: a message has no role, or a part is no text.
    """
    return [_plain(message, f"messages[{index}]") for index, message in enumerate(messages)]


class Renderer:
    """The prompts of conversations, rendered in processes of their own."""

    def __init__(self, chat: Chat) -> None:
        """No process is started yet."""
        self._chat = chat
        self._renderers = Renderers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def threads(self) -> Executor:
        """Threads for `render`, which no other work waits for."""
        return self._renderers.threads

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for the assistant's next turn. Blocks; may be called by any thread.

        Raises:
            ApiError: there is no template, it refuses the messages, or takes too long.
        """
        template = (self._chat.tool_template if tools else None) or self._chat.template
        if template is None:
            raise ApiError(
                "this model has no chat template: use /v1/completions, or start the server with --chat-template FILE",
                code="no_chat_template",
            )
        given = {
            **self._chat.special,
            "messages": plain_messages(messages),
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": True,
            **(variables or {}),
        }
        told = self._renderers.ask({"template": template, "variables": given})
        if "error" in told:
            raise ApiError(f"the chat template refuses this: {told['error']}", param="messages")
        text: str = told["text"]
        return text

    def close(self) -> None:
        """End the processes."""
        self._renderers.close()


def _plain(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise ApiError(f"{where}: a message needs a role", param=f"{where}.role")
    if "tool_calls" in message:
        message = {**message, "tool_calls": _calls(message["tool_calls"])}
    content = message.get("content")
    if content is None or isinstance(content, str):
        return dict(message)
    parts = content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise ApiError(f"{where}: this model reads text alone", param=f"{where}.content")
        texts.append(text)
    return {**message, "content": "".join(texts)}


def _calls(calls: Any) -> Any:
    """Calls whose arguments are what their text says, as templates expect them; what is none stays as it is."""
    if not isinstance(calls, list):
        return calls
    return [_call(call) for call in calls]


def _call(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str(text)}}:
            try:
                arguments = json.loads(text)
            except (ValueError, RecursionError):
                return call
            return {**call, "function": {**call["function"], "arguments": arguments}}
        case _:
            return call


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "mend it in the model's folder, and compile again"
        raise RunError(f"cannot be read: {error}", where=str(path), hint=hint) from None


def _text(value: Any) -> str | None:
    """A special token: a text, or an entry with its text and flags."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def _named(entries: Any) -> dict[str, str]:
    """A list of templates with names, as some tokenizers have them."""
    if not isinstance(entries, list):
        return {}
    found = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("template"), str):
            found[str(entry.get("name"))] = entry["template"]
    return found
