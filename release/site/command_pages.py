"""A page for each command, with what its `--help` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from release.commands import Command, Row, commands
from release.site.markdown import DEFINITIONS, code, described, escaped, fenced, toctree

FOLDER = "commands"


def command_pages() -> Iterator[tuple[str, str]]:
    """Path and text of each page."""
    every = {command.name: command for command in commands()}
    for command in every.values():
        yield f"{FOLDER}/{command.name}.md", page(command, every)


def top_pages() -> list[str]:
    """The pages of programs; those of their commands are below them."""
    return [f"{FOLDER}/{command.name}" for command in commands() if " " not in command.program]


def page(command: Command, every: dict[str, Command]) -> str:
    """The page of a command; `every` has those that it may name."""
    parts = [DEFINITIONS, f"# {escaped(command.program)}", *map(escaped, command.paragraphs)]
    parts.append(fenced("text", f"{command.program} {command.usage}"))
    below = [f"{command.name}-{term}" for term, _ in command.commands]
    if below:
        parts += ["## Commands", toctree(below)]
        parts += [
            f"- [{code(every[name].program)}]({name}.md): {escaped(every[name].summary)}" for name in below
        ]
    parts += _definitions("Options", command.options)
    parts += _definitions("Exit codes", command.exit_codes)
    if command.examples:
        parts += ["## Examples", fenced("sh", "\n".join(command.examples))]
    others = [name for name in command.see_also if name not in below]
    if others:
        parts += ["## See also", ", ".join(f"[{code(every[name].program)}]({name}.md)" for name in others)]
    return "\n\n".join(parts) + "\n"


def _definitions(title: str, rows: Sequence[Row]) -> Iterator[str]:
    """Rows without a meaning, such as arguments, stand in the usage."""
    told = [(term, meaning) for term, meaning in rows if meaning]
    if told:
        yield f"## {title}"
    for term, meaning in told:
        yield described(code(term), escaped(meaning))
