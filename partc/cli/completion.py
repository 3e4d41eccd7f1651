"""`partc completion`: what lets a shell complete command lines of partc."""

from __future__ import annotations

import os

import click

from partc.cli.options import example

VARIABLE = "_PARTC_COMPLETE"
"""The variable of the environment by which a shell asks for completions: `bash_complete`."""
_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    short_help="Print what completes command lines in your shell.",
    epilog=example(
        "partc completion bash > ~/.local/share/bash-completion/completions/partc",
        "partc completion zsh > ~/.zfunc/_partc",
        "partc completion fish > ~/.config/fish/completions/partc.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion_command(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and files of partc."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows these shells"
    # Not `source()`: it runs bash to look at its version, and this may be made for another machine.
    script = found(click.get_current_context().find_root().command, {}, "partc", VARIABLE)
    click.echo(script.source_template % script.source_vars(), nl=False)


def complete(command: click.Command) -> int | None:
    """Answer a shell that asks for completions; the exit code, or None where none asks."""
    instruction = os.environ.get(VARIABLE)
    if not instruction:
        return None
    from click.shell_completion import shell_complete

    return shell_complete(command, {}, "partc", VARIABLE, instruction)
