"""Blocks of commands in the manuals: fenced `sh` and `console`, and the YAML files that they work on.

A block that the tests cannot run says why, in a comment that no renderer shows, on the line before it:

    <!-- not run: it needs a phone -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HEREDOC = re.compile(r"<<'END'.*?^END$", re.MULTILINE | re.DOTALL)
_PLACED = re.compile(r"# (\S+\.yaml)\n")
_INLINE = re.compile(r"`(partc(?:-runner)? [^`]+)`")
_COLUMN = "partc is"
"""The name of a column in tables of benchmarks, and no command."""
PROGRAMS = ("partc", "partc-runner")
_PUNCTUATION = set("|;&()<>")


def manuals() -> list[Path]:
    """The README, the manuals, and the READMEs of folders."""
    folders = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "native").glob("README.md")]
    examples = [path for path in (ROOT / "examples").rglob("README.md") if "node_modules" not in path.parts]
    return sorted([*folders, *examples])


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    manual: str
    """Path of the manual below the root."""
    line: int
    """Line of the fence, from 1."""
    language: str
    text: str
    reason: str | None
    """The reason for which it is not run, where there is one."""

    @property
    def has_commands(self) -> bool:
        """Whether a reader would type it."""
        return self.language in ("sh", "console")

    @property
    def script(self) -> str:
        """The lines that a reader would type: of `console` the lines behind a prompt."""
        if self.language == "sh":
            return self.text
        return "".join(f"{line[2:]}\n" for line in self.text.splitlines() if line.startswith("$ "))

    @property
    def placed(self) -> str | None:
        """The name of the file that a block of YAML is, where its first line says so: `# demand.yaml`."""
        found = _PLACED.match(self.text) if self.language == "yaml" else None
        return found and found[1]


def blocks_of(manual: Path) -> list[Block]:
    """All fenced blocks of a manual."""
    text = manual.read_text(encoding="utf-8")
    return [
        Block(
            manual.relative_to(ROOT).as_posix(),
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["text"],
            found["reason"],
        )
        for found in _FENCE.finditer(text)
    ]


def command_lines(script: str) -> Iterator[list[str]]:
    """The command lines of partc's programs in a script, as words; pipes and other commands are cut off."""
    for line in _whole_lines(_HEREDOC.sub("", script)):
        words: list[str] = []
        for word in [*_words(line), ";"]:
            if not set(word) <= _PUNCTUATION:
                words.append(word)
                continue
            while words and "=" in words[0]:
                words = words[1:]  # variables of the environment
            if words and words[0].rpartition("/")[2] in PROGRAMS:
                yield [words[0].rpartition("/")[2], *words[1:]]
            words = []


def _whole_lines(script: str) -> Iterator[str]:
    """Lines of a script, those within quotes and those that end in a backslash put together."""
    line = ""
    for part in script.replace("\\\n", " ").splitlines():
        line += part + "\n"
        try:
            _words(line)
        except ValueError:
            continue  # a quotation goes on
        yield line
        line = ""
    assert not line, f"a quotation does not end: {line}"


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="".join(_PUNCTUATION))
    lexer.whitespace_split = True
    return list(lexer)


def inline_commands(manual: Path) -> list[list[str]]:
    """Command lines of partc in running text, between single backquotes."""
    text = _FENCE.sub("", manual.read_text(encoding="utf-8"))
    found = [line for line in _INLINE.findall(text) if line != _COLUMN]
    return [shlex.split(line.replace("…", "").replace("'", "")) for line in found]
