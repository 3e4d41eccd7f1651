"""Runs the ring of a build and the model that it must equal on the same inputs; measures the cost of quantisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from partc.config.model import ModelConfig
from partc.errors import BundleError, UserError
from partc.format.build import TensorType
from partc.format.role import load_role
from partc.format.tasks import WITH_MEDIA, WITH_SOURCE
from partc.ir.quantization import AS_STORED
from partc.pipeline.contract import Progress, no_progress
from partc.runtime.client.launch import LocalSettings, launch_local
from partc.runtime.client.runners import Runner
from partc.runtime.core.liveness import LEAST_PATIENCE_S
from partc.runtime.shell.log import LogSettings
from partc.scratch import scratch_folder
from partc.verifier.cost import CostMeasurement, choose_measurement
from partc.verifier.drafts import check_guesses, compare_drafts
from partc.verifier.expectation import Expectation, Original, SameQuantization
from partc.verifier.inputs import Requests
from partc.verifier.origin import Build, read_build, read_origin, say
from partc.verifier.passages import MOST_TOKENS
from partc.verifier.pieces import shares_blocks
from partc.verifier.reference import open_reference
from partc.verifier.report import Report
from partc.verifier.requests import Generation, OneStep
from partc.verifier.uncut import compile_uncut
from partc.verifier.uncut_ring import UncutRing

_ROUNDS_APART = (
    "devices that share blocks round the activations of their shares apart, so that experts, and tokens, that are "
    "about as likely change places; to compare the cut alone, compile with `quantize: none`"
)
_QUANTISE = "leave out --text, or compile with `quantize: int8` or int4 in model.yaml"


def verify_build(
    build: Path,
    prompts: Sequence[str] = (),
    tokens: int = 64,
    *,
    model: str | None = None,
    text: Path | None = None,
    text_tokens: int = MOST_TOKENS,
    cost: bool = True,
    drafts: bool = False,
    runner: Runner | None = None,
    patience_s: float = LEAST_PATIENCE_S,
    log: LogSettings | None = None,
    progress: Progress = no_progress,
) -> Report:
    """Compare the ring of `build`, started on this machine, with the model that it must equal.

    That is the original, or for a quantised build the uncut model of the same quantisation; how far quantisation is
    from the original is a figure of its own.

    Args:
        build: what compile wrote.
        prompts: texts instead of the built-in prompts.
        tokens: greedy tokens a request, fewer if max_sequence asks for it.
        model: the original, where it has moved.
        text: a file to measure the cost of quantisation on.
        text_tokens: how many of its tokens are predicted.
        cost: measure it at all, which takes the whole original in memory.
        drafts: compare requests with guessed tokens with the same ones without, too.
        runner: see `LocalSettings`.
        patience_s: the shortest time without progress after which a device counts as gone, seconds.
        log: the log of the ring, on standard error; None: there is none.
        progress: called as cases are done.

    Raises:
        BundleError, ConfigError, ModelError: the build or the original cannot be opened.
        UserError: the text cannot be used.
        RunError: the ring failed.
    """
    config, built = read_origin(build, model), read_build(build)
    if config.quantize is None and config.keep_stored and built.quantize == AS_STORED.text:
        config = replace(config, quantize=AS_STORED)
    asked = Requests(prompts, tokens)
    settings = LocalSettings(runner=runner, floor_s=patience_s, log=log)
    _check_same(config, built, build)
    if drafts:
        check_guesses(built.role)
    types = _types(build, built)

    def compare(expected: Expectation) -> Report:
        return _compare(build, expected, asked, types, settings, progress, drafts=drafts)

    if config.quantize is None:
        _refuse_text(text, "the build is not quantised: there is no cost to measure", _QUANTISE)
        report = compare(_original(config, built, progress))
        return replace(report, note=rounding_note(report, built.role.model.dtype))
    whole = replace(config, max_batch=built.role.model.max_batch, auto_batch=False)
    if config.task in (*WITH_SOURCE, *WITH_MEDIA):
        _refuse_text(text, _unmeasured(config), "leave out --text")
        return _beside_ring(whole, built, settings, compare, progress)
    # Before the long work: a mistake in the text should not cost minutes.
    measurement = choose_measurement(build, config, built.role, asked, text, text_tokens) if cost else None
    return _beside_uncut(whole, built, types, measurement, compare, progress)


_Compare = Callable[[Expectation], Report]
"""Compares the ring of the build with what it must equal."""


def _beside_ring(
    config: ModelConfig, built: Build, settings: LocalSettings, compare: _Compare, progress: Progress
) -> Report:
    """The ring beside one of a single device, which has the whole model of the same quantisation."""
    with scratch_folder("verify") as folder:
        device = compile_uncut(config, built.device, folder, built.disable, progress)
        with launch_local(device.parents[1], settings) as one, one.client() as client:
            report = compare(UncutRing(client, shared=_rounds_apart(config, built)))
    return replace(report, note="; ".join(filter(None, (_note(built, report), _unmeasured(config)))))


def _beside_uncut(
    config: ModelConfig,
    built: Build,
    types: Mapping[str, TensorType],
    measurement: CostMeasurement | None,
    compare: _Compare,
    progress: Progress,
) -> Report:
    """The ring beside the uncut model of the same quantisation, and that beside the original."""
    with scratch_folder("verify") as folder:
        alone = compile_uncut(config, built.device, folder, built.disable, progress, types)
        uncut = SameQuantization(alone, built.role.model, shared=_rounds_apart(config, built))
        report = compare(uncut)
        found = measurement.cost(alone, progress) if measurement else None
    return replace(report, cost=found, note=_note(built, report))


def _rounds_apart(config: ModelConfig, built: Build) -> bool:
    """Whether devices share blocks whose activations each of them rounds by scales of its own."""
    weights = config.quantize.weights if config.quantize else None
    return shares_blocks(built.role.placement) and weights == "int8"


def _unmeasured(config: ModelConfig) -> str:
    return f"the cost of quantisation is not measured for {config.task}"


def _original(config: ModelConfig, built: Build, progress: Progress) -> Original:
    progress("load original", 0, 1)
    model = built.role.model
    found = Original(open_reference(config, model.start_tokens, built.disable), model.dtype)
    progress("load original", 1, 1)
    return found


def _refuse_text(text: Path | None, reason: str, hint: str) -> None:
    if text is not None:
        raise UserError(reason, where=str(text), hint=hint)


def _check_same(config: ModelConfig, built: Build, build: Path) -> None:
    """Raises BundleError where the model named is not the one of the build, as far as that can be seen."""
    model = built.role.model
    hint = "name the model that it was compiled from: --model model.yaml"
    if (config.task, config.dtype) != (model.task, model.dtype):
        raise BundleError(
            f"the build is for {model.task} in {model.dtype}, this model for {config.task} in {config.dtype}",
            where=str(build),
            hint=hint,
        )
    if built.quantize is not None and built.quantize != say(config.quantize):
        raise BundleError(
            f"the build is quantised as {built.quantize}, this model as {say(config.quantize)}",
            where=str(build),
            hint=hint,
        )


def _compare(
    build: Path,
    expected: Expectation,
    asked: Requests,
    types: Mapping[str, TensorType],
    settings: LocalSettings,
    progress: Progress,
    *,
    drafts: bool,
) -> Report:
    with launch_local(build, settings) as ring, ring.client() as client:
        if client.role.model.generates:
            report = Generation(client, expected, types, progress).run(asked)
            return replace(report, guessed=compare_drafts(client, asked, progress) if drafts else ())
        return OneStep(client, expected, types, progress).run()


def _types(build: Path, built: Build) -> dict[str, TensorType]:
    """The types of all values that any device of the ring names."""
    roles = [load_role(build / "devices" / name) for name in built.role.ring]
    return {name: kind for role in roles for name, kind in role.types.items()}


def rounding_note(report: Report, dtype: str) -> str:
    """A note that half precision itself may be why tokens differ; empty where it is not, or none does."""
    if dtype == "float32" or report.identical_tokens is not False:
        return ""
    return (
        f"in {dtype} the original rounds every result and a device may not, so that tokens that are about as likely "
        "change places; to compare the cut alone, compile with `dtype: float32`"
    )


def _note(built: Build, report: Report) -> str:
    """A note that devices compute otherwise than the uncut model does, so that tokens may differ."""
    notes = []
    if built.others:
        names = ", ".join(built.others)
        notes.append(
            f"the uncut model has the options of {built.role.source}; other ones are those of {names}"
        )
    if not report.equal and shares_blocks(built.role.placement):
        notes.append(_ROUNDS_APART)
    return "; ".join(notes)
