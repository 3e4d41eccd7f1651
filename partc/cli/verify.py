"""`partc verify`: the cut model compared with the original."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import (
    FILE,
    example,
    json_option,
    log_of,
    log_options,
    print_json,
    refuse,
    runner_options,
)

if TYPE_CHECKING:
    from partc.runtime.client.runners import Runner


@click.command(
    "verify",
    short_help="Compare a bundle with the original model.",
    epilog=example(
        "partc verify build",
        'partc verify build --prompt "Once upon a time" --tokens 32 --json',
        "partc verify build --text book.txt",
    ),
)
@click.argument("build", type=FILE, default="build")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="TEXT",
    help="A prompt instead of the built-in ones. Repeatable.",
)
@click.option(
    "--tokens", default=64, show_default=True, type=click.IntRange(1), metavar="N", help="Tokens to generate."
)
@click.option("--model", metavar="MODEL", help="The original, where it has moved since it was compiled.")
@click.option(
    "--text",
    type=FILE,
    metavar="FILE",
    help="The text on which the cost of quantisation is measured.  [default: sample.txt beside the model's "
    "weights, or text that the original writes]",
)
@click.option(
    "--text-tokens",
    default=512,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Tokens of the text to predict.",
)
@click.option(
    "--no-cost",
    is_flag=True,
    help="Leave out the cost of quantisation, which needs memory for the whole original.",
)
@click.option(
    "--drafts",
    is_flag=True,
    help="Compare requests with guessed tokens with the same ones without, too.",
)
@runner_options
@log_options("none")
@json_option("the report")
def verify_command(
    build: Path,
    prompts: tuple[str, ...],
    tokens: int,
    model: str | None,
    text: Path | None,
    text_tokens: int,
    no_cost: bool,
    drafts: bool,
    runner: Runner | None,
    patience: float | None,
    log_level: str,
    log_format: str,
    as_json: bool,
) -> None:
    """Run the original and the cut model in BUILD on the same inputs and compare tokens and every cut.

    A model with quantised weights or caches is compared with the uncut model of the same quantisation, and then with
    the original: top-1 agreement, KL divergence, perplexity. Of one that reads a source, a picture or a sound tokens
    and logits are compared alone.

    The exit code is 1 if the cut model differs.
    """
    from partc.api.builds import load_build
    from partc.cli.progress import progress_bar
    from partc.cli.verdict import print_report
    from partc.runtime.core.liveness import LEAST_PATIENCE_S
    from partc.verifier import verify_build

    refuse(no_cost and text is not None, "--text and --no-cost exclude each other")
    load_build(build)  # whether it is a build at all comes before what it was compiled from
    if model is None:
        _check_origin(build)
    with progress_bar() as bar:
        bar.start("verify")
        report = verify_build(
            build,
            prompts,
            tokens,
            model=model,
            text=text,
            text_tokens=text_tokens,
            cost=not no_cost,
            drafts=drafts,
            runner=runner,
            patience_s=patience or LEAST_PATIENCE_S,
            log=log_of(log_level, log_format),
            progress=bar.update,
        )
    if as_json:
        print_json(report.to_json())
    else:
        print_report(report)
    if not report.equal:
        click.get_current_context().exit(1)


def _check_origin(build: Path) -> None:
    """Say how to name the original, where it is not any more where it was compiled from."""
    from partc.errors import ConfigError
    from partc.verifier.origin import read_origin

    try:
        read_origin(build)
    except ConfigError as error:
        raise ConfigError(
            f"the original of this build: {error.message}",
            where=error.where,
            hint=f"if it has moved, name it: partc verify {build} --model MODEL",
        ) from error
