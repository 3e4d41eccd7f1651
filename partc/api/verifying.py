"""`partc.verify`: a build compared with the original model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from partc.api.build import Build
from partc.api.compiling import PathLike
from partc.pipeline.contract import Progress, no_progress
from partc.verifier.check import verify_build
from partc.verifier.passages import MOST_TOKENS
from partc.verifier.report import Report


def verify(
    build: PathLike | Build = "build",
    prompts: Sequence[str] = (),
    tokens: int = 64,
    *,
    model: str | None = None,
    text: PathLike | None = None,
    text_tokens: int = MOST_TOKENS,
    cost: bool = True,
    drafts: bool = False,
    runner: Literal["native", "python"] | None = None,
    progress: Progress = no_progress,
) -> Report:
    """Run the original and the cut model on the same inputs, and compare tokens and every value that crosses a cut.

    Args:
        build: what `compile` wrote.
        prompts: texts instead of the built-in prompts.
        tokens: greedy tokens of an answer.
        model: the original, where it has moved since.
        text: a file to measure the cost of quantisation on.
        text_tokens: how many of its tokens are predicted.
        cost: measure that cost at all, which takes the whole original in memory.
        drafts: compare requests with guessed tokens with the same ones without, too.
        runner: what runs the devices; None: the native runner where the build has it.
        progress: called as (what, done, total).

    Raises:
        UserError: the build or the original cannot be opened, or the text cannot be used.
        RunError: the ring failed.
    """
    opened = build if isinstance(build, Build) else Build(build)
    return verify_build(
        opened.path,
        prompts,
        tokens,
        model=model,
        text=None if text is None else Path(text),
        text_tokens=text_tokens,
        cost=cost,
        drafts=drafts,
        runner=runner,
        progress=progress,
    )
