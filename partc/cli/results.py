"""The output of `partc run`: text as it is generated, results, and times."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.table import Table

from partc.cli.tables import show, table
from partc.config.units import format_bytes, format_seconds
from partc.printable import note, printable
from partc.runtime.client.results import NO_GUESSES, GuessCounts

if TYPE_CHECKING:
    from partc.format.build import Model
    from partc.format.dtypes import Array
    from partc.runtime.client.results import Result, Timings, Tokens

Labels = Sequence[str] | None
_WAIT = "wait_s:"
_COUNTS = ("step", "sent_bytes", "received_bytes", "epoch")


def print_tokens(step: Tokens, prompt: str = "") -> None:
    """One step of a single sequence, as it comes: its text, or its token id where the prompt was of ids.

    `prompt` goes before the first, dim.
    """
    if prompt and step.step == 0:
        click.secho(_shown(prompt), nl=False, dim=True)
    if step.texts:
        click.echo(_shown(step.texts[0]), nl=False)
    elif step.tokens[0] is not None:
        click.echo(f"{', ' if step.step else ''}{step.tokens[0]}", nl=False)


def _shown(text: str) -> str:
    """Text of a model: as it came in a file or a pipe, without commands to the terminal at one."""
    return printable(text) if sys.stdout.isatty() else text


def print_results(
    results: Sequence[Result], labels: Labels, streamed: bool, prompts: Sequence[str] = ()
) -> None:
    """Results in the order of the requests; of one that was streamed only the end of its line.

    `prompts`, one a sequence, go before the texts that continue them, dim.
    """
    if streamed and results[0].tokens:
        click.echo()
        return
    rows = list(_rows(results, labels))
    for number, (result, row) in enumerate(rows, start=1):
        if len(rows) > 1:
            click.secho(f"[{number}]", bold=True)
        if result.texts and prompts:
            click.secho(_shown(prompts[number - 1]), nl=False, dim=True)
        for line in _lines(result, row, labels):
            click.echo(_shown(line))


def print_limits(results: Sequence[Result], model: Model) -> None:
    """Say on stderr which texts end because of the limit of tokens, and how to get the rest."""
    rows = [item for item in _rows(results) if item[0].finish]
    cut = [number for number, (result, row) in enumerate(rows) if result.finish[row] == "length"]
    if not cut:
        return
    result, row = rows[cut[0]]
    which = "" if len(rows) == 1 else f"{' '.join(f'[{number + 1}]' for number in cut)} "
    prompts = (rows[number][0].prompts[rows[number][1]] if rows[number][0].prompts else () for number in cut)
    room = min(model.max_sequence - len(model.before_answer(prompt)) for prompt in prompts)
    count = len(result.tokens[row])
    note(f"{which}stopped at the limit of {count} new tokens, not at an end")
    more = (
        f"--tokens N for more, here at most {room}" if count < room else "compile with a larger max_sequence"
    )
    click.echo(f"  hint: {more}", err=True)


def _rows(results: Sequence[Result], labels: Labels = None) -> Iterator[tuple[Result, int]]:
    """Every sequence of every request, and every picture with labels; another request of tensors is one."""
    for result in results:
        classified = result.outputs.get("logits", ()) if labels else ()
        for row in range(max(1, len(result.tokens or result.prompts or classified))):
            yield result, row


def _lines(result: Result, row: int, labels: Labels) -> Iterator[str]:
    if result.texts:
        yield result.texts[row]
    elif result.tokens:
        yield ", ".join(map(str, result.tokens[row]))
    elif labels and "logits" in result.outputs:
        yield from (
            f"{score:6.1%}  {label}" for label, score in _scores(result.outputs["logits"][row], labels)
        )
    else:
        yield from (f"{name}: {array.dtype}{list(array.shape)}" for name, array in result.outputs.items())


def _scores(logits: Array, labels: Sequence[str]) -> list[tuple[str, float]]:
    """Labels by falling probability (softmax)."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    scores = powers / powers.sum()
    return sorted(zip(labels, map(float, scores), strict=True), key=lambda item: -item[1])


def results_json(results: Sequence[Result], labels: Labels, timing: bool = False) -> dict[str, Any]:
    """The results of all requests; with `timing` the time per device and link too."""
    return {
        "labels": list(labels) if labels else None,
        "requests": [
            {
                **_result_json(result),
                **_scores_json(result, labels),
                **({"timings": _timings_json(result)} if timing else {}),
            }
            for result in results
        ],
    }


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "prompts": [list(map(int, prompt)) for prompt in result.prompts],
        "tokens": [list(map(int, tokens)) for tokens in result.tokens],
        "texts": list(result.texts),
        "finish": list(result.finish),
        "outputs": {name: array.tolist() for name, array in result.outputs.items()},
        "elapsed_s": result.elapsed_s,
        **(_guesses_json(result.guesses) if result.tokens else {}),
    }


def _guesses_json(guesses: GuessCounts) -> dict[str, Any]:
    return {
        "drafted": guesses.guessed,
        "accepted": guesses.right,
        "drafted_share": guesses.share,
        "rows_per_token": guesses.rows_per_token,
    }


def _scores_json(result: Result, labels: Labels) -> dict[str, Any]:
    """For each sequence or picture its labels by falling probability; nothing where there are no labels.

    They are a list as transformers' pipelines give one: ImageNet has two classes of the same name.
    """
    if not labels or "logits" not in result.outputs:
        return {}
    rows = [_scores(row, labels) for row in result.outputs["logits"]]
    return {"scores": [[{"label": label, "score": score} for label, score in row] for row in rows]}


def _timings_json(result: Result) -> dict[str, dict[str, list[float]]]:
    """Device → column → a number a step; counts are whole."""
    return {
        device: {
            name: timings.column(name).astype(np.int64 if name in _COUNTS else np.float64).tolist()
            for name in timings.columns
        }
        for device, timings in result.timings.items()
    }


def write_outputs(file: Path, results: Sequence[Result]) -> None:
    """The outputs of the last request that has any, as an .npz file."""
    arrays = next((dict(result.outputs) for result in reversed(results) if result.outputs), {})
    with file.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def print_timings(results: Sequence[Result]) -> None:
    """Two tables on stderr: computing per device, and waiting per link."""
    total = sum(len(tokens) for result in results for tokens in result.tokens)
    elapsed = max((result.elapsed_s for result in results), default=0.0)
    rate = (
        [f"{total} tokens in {format_seconds(elapsed)}, {total / elapsed:.1f} a second"]
        if total and elapsed
        else []
    )
    guesses = sum((result.guesses for result in results), NO_GUESSES)
    if guesses.guessed:
        rate.append(str(guesses))
    devices = list(dict.fromkeys(device for result in results for device in result.timings))
    merged = [
        (device, [result.timings[device] for result in results if device in result.timings])
        for device in devices
    ]
    show(_compute_table(merged), _wait_table(merged), *rate, stderr=True)


_Merged = Sequence[tuple[str, Sequence["Timings"]]]
"""Device and its timings in every request."""


def _compute_table(merged: _Merged) -> Table:
    columns = ["device", "prefill", "decode", "queued", "sent in all"]
    rows = [
        [
            device,
            _mean_time(timings, "compute_s", first=True),
            _mean_time(timings, "compute_s", first=False),
            _mean_time(timings, "queue_s", first=False),
            format_bytes(float(_column(timings, "sent_bytes").sum())),
        ]
        for device, timings in merged
    ]
    return table("Computing (mean of a step)", columns, rows, right=columns[1:])


def _wait_table(merged: _Merged) -> Table:
    rows = [
        [
            peer,
            device,
            _mean_time(timings, _WAIT + peer, first=True),
            _mean_time(timings, _WAIT + peer, first=False),
        ]
        for device, timings in merged
        for peer in _peers(timings)
    ]
    return table(
        "Waiting (mean of a step)", ["from", "on", "prefill", "decode"], rows, right=["prefill", "decode"]
    )


def _peers(timings: Sequence[Timings]) -> list[str]:
    names = (name for item in timings for name in item.columns if name.startswith(_WAIT))
    return list(dict.fromkeys(name.removeprefix(_WAIT) for name in names))


def _column(timings: Sequence[Timings], name: str, first: bool | None = None) -> Array:
    """A column over all requests; of first steps (prefill) or of the others alone, if asked for."""
    parts = [item.column(name)[_chosen(item, first)] for item in timings]
    return np.concatenate(parts) if parts else np.zeros(0)


def _chosen(timings: Timings, first: bool | None) -> Array:
    step = timings.column("step")
    return np.ones(len(step), bool) if first is None else (step == 0) == first


def _mean_time(timings: Sequence[Timings], name: str, first: bool) -> str:
    values = _column(timings, name, first)
    return format_seconds(float(values.mean())) if len(values) else "-"
