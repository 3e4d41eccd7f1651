"""The options of `partc run`, as one value: what is asked for, what runs it, what is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from partc.cli.options import log_of, refuse, refuse_runner_options

if TYPE_CHECKING:
    from partc.format.message_parts import Sampling
    from partc.runtime.client.launch import LocalSettings
    from partc.runtime.client.runners import Runner


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What `partc run` is given; each field is an option of that name."""

    # -- the requests
    prompts: tuple[str, ...]
    token_ids: tuple[str, ...]
    tensors: Path | None
    images: tuple[Path, ...]
    sounds: tuple[Path, ...]
    batch: bool
    tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    seed: int
    # -- the ring
    connect: str | None
    restart: bool
    rejoin: float | None
    runner: Runner | None
    patience: float | None
    log_level: str
    log_format: str
    linger: float
    balance: bool
    drafts: bool
    insecure: bool
    # -- the results
    output: Path | None
    stream: bool
    timing: bool
    record: bool
    as_json: bool

    @property
    def sampling(self) -> Sampling:
        """The choice of tokens."""
        from partc.format.message_parts import Sampling

        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)

    @property
    def runners(self) -> LocalSettings:
        """The runners of a local ring."""
        from partc.runtime.client.launch import LocalSettings
        from partc.runtime.core.liveness import LEAST_PATIENCE_S

        return LocalSettings(
            self.insecure,
            floor_s=self.patience or LEAST_PATIENCE_S,
            restart=self.restart,
            rejoin_s=self.rejoin,
            linger_s=self.linger,
            runner=self.runner,
            log=log_of(self.log_level, self.log_format),
        )

    @property
    def asks_to_balance(self) -> bool:
        """Whether `--balance` was written."""
        return self.balance and not _is_default("balance")

    def check(self) -> None:
        """Refuse options that say nothing, or that are for local runners where there are none."""
        given = (*self.prompts, *self.token_ids, *self.images, *self.sounds)
        refuse(
            not given and self.tensors is None,
            "nothing to run: give --prompt, --token-ids, --image, --audio or --input",
        )
        if self.connect is None:
            return
        refuse(
            not _is_default("restart"),
            "--restart and --no-restart are for local runners: leave --connect out",
        )
        refuse(
            self.rejoin is not None,
            "--rejoin is for local runners: with --connect, give it to the source's partc-runner",
        )
        refuse_runner_options(self.runner, self.patience)


def _is_default(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.DEFAULT
