"""The files that a wheel puts beside its programs, below `share/` of an environment."""

from __future__ import annotations

from collections.abc import Iterator

from click.testing import CliRunner

from partc.cli.completion import completion_command
from partc.cli.main import partc
from release.commands import commands
from release.man_pages import page, page_file

_COMPLETIONS = {
    "bash": "share/bash-completion/completions/partc",
    "zsh": "share/zsh/site-functions/_partc",
    "fish": "share/fish/vendor_completions.d/partc.fish",
}
"""Shell → where it looks for what others install."""


def shared_files(seconds: int) -> Iterator[tuple[str, str]]:
    """Path below the environment, and text; `seconds` since 1970 are the date of manual pages."""
    for command in commands():
        yield f"share/man/man1/{page_file(command)}", page(command, seconds)
    for shell, path in _COMPLETIONS.items():
        yield path, _completion(shell)


def _completion(shell: str) -> str:
    """What `partc completion SHELL` prints."""
    assert completion_command.name is not None
    done = CliRunner().invoke(partc, [completion_command.name, shell], catch_exceptions=False)
    return done.stdout
