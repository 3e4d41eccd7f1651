"""A golden case: one Markdown file with a command, its input files, and what it must print.

```
prose                       what the case is about
~~~sh [marker ...]          real command lines; words after `sh` are pytest markers (hf, ort)
~~~file NAME                an input file, in the folder where the commands run
~~~file NAME from CASE      that file of the case CASE.md beside this one, with edits: the block holds
                            `regular expression => replacement`, one a line
~~~show                     paths into JSON, one a line: of every JSON object that is printed (and of the
                            plan in IR text) these are shown, as lines `path = value`, and nothing else
~~~filter                   `regular expression => replacement`, one a line: what differs from run to run, noise
~~~stdout  ~~~stderr        what the commands print; a stream without a block prints nothing
~~~diff NAME                instead of `stdout`: the lines in which stdout differs from the file NAME, with one
                            line around them; empty where nothing differs
~~~exit                     the exit code of the last command, 0 without a block
```

Fences are three backquotes. `{root}` in a command is the folder of the project. Commands run one after
another until one fails, in this process; each is `partc …`, `partc-runner …` or `cat FILE`; `|` joins
them, and `> FILE` keeps what one of them prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.golden.views import difference, picked, substituted

_FENCE = re.compile(r"^```(.*)$")
EXPECTED = ("stdout", "diff", "stderr", "exit")
_KINDS = ("sh", "file", "show", "filter", *EXPECTED)


class CaseError(Exception):
    """The file is not a golden case."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    kind: str
    argument: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """What commands did."""

    stdout: str
    stderr: str
    exit: int

    def text(self, kind: str) -> str:
        """The text that a block of this kind must hold; empty where there must be none."""
        if kind == "exit":
            return f"{self.exit}\n" if self.exit else ""
        return self.stderr if kind == "stderr" else self.stdout


@dataclass(frozen=True)
class Case:
    """A parsed file."""

    prose: str
    blocks: tuple[Block, ...]

    def of(self, kind: str) -> list[Block]:
        """The blocks of one kind, in order."""
        return [block for block in self.blocks if block.kind == kind]

    @property
    def commands(self) -> list[str]:
        """Command lines."""
        return self._lines("sh")

    @property
    def markers(self) -> list[str]:
        """Names of pytest markers."""
        return [word for block in self.of("sh") for word in block.argument.split()]

    @property
    def files(self) -> dict[str, str]:
        """Input files: name → text, or the edits of a file `from` another case."""
        return {block.argument.partition(" from ")[0]: block.text for block in self.of("file")}

    @property
    def origins(self) -> dict[str, str]:
        """The other case that an input file comes from: name of the file → name of the case."""
        parts = [block.argument.partition(" from ") for block in self.of("file")]
        return {name: origin for name, _, origin in parts if origin}

    @property
    def base(self) -> str | None:
        """The file that stdout is shown as a difference from; None where it is shown as it is."""
        blocks = self.of("diff")
        return blocks[0].argument if blocks else None

    @property
    def streams(self) -> tuple[str, ...]:
        """The kinds of block that hold what this case expects."""
        return ("stdout" if self.base is None else "diff", "stderr", "exit")

    @property
    def has_expectation(self) -> bool:
        """Whether anything is expected at all."""
        return any(self.of(kind) for kind in EXPECTED)

    def expected(self, kind: str) -> str:
        """The text of the block of this kind, empty where there is none."""
        return "".join(block.text for block in self.of(kind))

    def viewed(self, outcome: Outcome, files: Mapping[str, str]) -> Outcome:
        """`outcome` as the case shows it: JSON picked, filtered, and as a difference from one of `files`."""
        stdout, stderr = self._shown(outcome.stdout), substituted(outcome.stderr, self._lines("filter"))
        if self.base is not None:
            stdout = difference(self._shown(files.get(self.base, "")), stdout)
        return replace(outcome, stdout=stdout, stderr=stderr)

    def _shown(self, text: str) -> str:
        return substituted(picked(text, self._lines("show")), self._lines("filter"))

    def _lines(self, kind: str) -> list[str]:
        return [line for block in self.of(kind) for line in block.text.splitlines() if line.strip()]

    def with_outcome(self, outcome: Outcome) -> Case:
        """The same case, expecting `outcome`."""
        kept = tuple(block for block in self.blocks if block.kind not in EXPECTED)
        new = [
            Block(kind, self.base or "" if kind == "diff" else "", outcome.text(kind))
            for kind in self.streams
            if outcome.text(kind) or kind == "diff"
        ]
        return replace(self, blocks=(*kept, *(new or [Block("stdout", "", "")])))

    def unused_files(self) -> list[str]:
        """Input files that neither a command nor another file of the case names."""
        texts = {"": "\n".join(self.commands), **self.files}
        return [
            name
            for name in self.files
            if not any(_mentions(text, name) for other, text in texts.items() if other != name)
        ]


def _mentions(text: str, name: str) -> bool:
    """Whether `text` names the file itself or a folder above it."""
    path = Path(name)
    return any(str(part) in text for part in (path, *path.parents) if str(part) != ".")


def parse_case(text: str) -> Case:
    """The case that `text` describes.

    Raises:
        CaseError: a block of unknown kind, an unclosed one, a second expectation of a kind, or no command.
    """
    prose: list[str] = []
    blocks = list(_blocks(text, prose))
    case = Case("\n".join(prose).strip(), tuple(blocks))
    if not case.commands:
        raise CaseError("there is no block ```sh with a command")
    for kind in EXPECTED:
        if len(case.of(kind)) > 1:
            raise CaseError(f"there is more than one block ```{kind}")
    return case


def _blocks(text: str, prose: list[str]) -> Iterator[Block]:
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            prose.append(line.rstrip("\n"))
            continue
        kind, _, argument = fence.group(1).strip().partition(" ")
        if kind not in _KINDS:
            raise CaseError(f"unknown block {kind!r}; known: {', '.join(_KINDS)}")
        yield Block(kind, argument.strip(), _content(lines, kind))


def _content(lines: Iterator[str], kind: str) -> str:
    content: list[str] = []
    for line in lines:
        if line.rstrip() == "```":
            return "".join(content)
        content.append(line)
    raise CaseError(f"the block ```{kind} is never closed")


def print_case(case: Case) -> str:
    """The file of a case: prose, then the blocks in their order, as `parse_case` reads it."""
    parts = [case.prose] if case.prose else []
    parts += [f"```{f'{b.kind} {b.argument}'.strip()}\n{_ended(b.text)}```" for b in case.blocks]
    return "\n\n".join(parts) + "\n"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
