"""The process that renders a chat template: `python -m partc.serve.render`, one JSON line in, one out.

A template is part of a model, and messages come from anybody; so both are rendered where loops cost no more than the
seconds of the processor that the line gives, and memory no more than `MEMORY_BYTES`. Rendering is what transformers'
`apply_chat_template` does: jinja2's immutable sandbox, with the same options, filters and functions.

```
→ {"template": text, "variables": {name: value}, "seconds": number}
← {"text": text}, {"error": text} or {"slow": true}
```
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_HARD_S = 0.5
"""A single operation that goes on for so long after its time is over ends the process."""
MEMORY_BYTES = 1 << 30
"""Address space, of which the interpreter itself takes a tenth."""
MOST_CHARACTERS = 4 << 20
"""Length of a rendered prompt."""


class TemplateError(Exception):
    """The template itself refuses these messages."""


class _SlowError(Exception):
    """Its time is over."""


class _Generation(Extension):
    """`{% generation %}`, which marks the assistant's words for training, and means nothing here."""

    tags = {"generation"}  # noqa: RUF012  (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body, as if the tag were not there."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(template: str, variables: dict[str, Any]) -> str:
    """The prompt.

    Raises:
        TemplateError: the template refuses the messages, or the prompt is too long.
        jinja2.TemplateError: the template is none, or does what the sandbox forbids.
    """
    pieces: list[str] = []
    left = MOST_CHARACTERS
    for piece in _compiled(template).generate(**variables):
        left -= len(piece)
        if left < 0:
            raise TemplateError(f"the prompt has more than {MOST_CHARACTERS} characters")
        pieces.append(piece)
    return "".join(pieces)


@lru_cache(maxsize=4)
def _compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment.from_string(template)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON without the escapes of HTML that jinja2's own filter adds."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _answer(line: str) -> dict[str, Any]:
    asked = json.loads(line)
    # Time of the processor: a machine that is busy with a model is no reason to refuse a template.
    signal.setitimer(signal.ITIMER_VIRTUAL, asked["seconds"] + _HARD_S)
    signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
    try:
        return {"text": render(asked["template"], asked["variables"])}
    except _SlowError:
        return {"slow": True}
    except (TemplateError, jinja2.TemplateError) as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "it takes too much memory"}
    except Exception as error:  # whatever a template does to the values that it is given
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _over(number: int, frame: object) -> None:
    raise _SlowError


def main() -> None:
    """Render line after line until standard input ends; an operation without end ends the process (SIGVTALRM)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which closes our input then
    signal.signal(signal.SIGPROF, _over)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin:
        try:
            told = _answer(line)
        except _SlowError:  # it came on the way out
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            told = {"slow": True}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
