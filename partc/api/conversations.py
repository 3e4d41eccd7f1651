"""Conversations as prompts, by a model's own chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partc.errors import RunError
from partc.runtime.client.text import Tokenizer
from partc.serve.errors import ApiError
from partc.serve.template import Renderer, read_chat


class Conversations:
    """Renders conversations in a process of its own, since a template is a program of whoever made the model."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, template: Path | None) -> None:
        """Read the template in a folder of a tokenizer, or that of a file instead; no process is started yet.

        Raises:
            RunError: a file of the tokenizer is damaged.
            ConfigError: the file of the template cannot be read.
        """
        self._tokenizer = tokenizer
        self._renderer = Renderer(chat := read_chat(folder, template))
        turns = (tokenizer.token(text) for text in chat.ends) if tokenizer.is_there else ()
        self.ends = [token for token in turns if token is not None]
        """Tokens that end the assistant's turn."""
        self._has_template = chat.template is not None

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
    ) -> list[int]:
        """The token ids before the assistant's next turn; `variables` go to the template, `tools` among them.

        Raises:
            RunError: the model has no template, or it refuses the messages.
        """
        if not self._has_template:
            hint = "partc.Ring(build, chat_template=FILE), or ring.generate(text) with the turns written out"
            raise RunError("this model has no chat template", hint=hint)
        try:
            text = self._renderer.render(messages, variables.get("tools"), {**variables})
        except ApiError as error:
            raise RunError(
                error.message, where=error.param or "messages", hint="see the model's template"
            ) from error
        return self._tokenizer.encode_whole([text])[0]

    def close(self) -> None:
        """End the process."""
        self._renderer.close()
