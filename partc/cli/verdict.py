"""The output of `partc verify`: a row for each request and each cut, and the verdict as the last line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from partc.cli.tables import show, table
from partc.ir.quantization import BLOCKWISE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from partc.verifier.report import Cost, CutError, Guessed, Report

_WRONG = 5
"""Wrong pieces that have a row each; after the first one all are."""

_LEGEND = "error: largest absolute difference; largest: largest absolute value"
_SHARED = (
    "pieces of values are compared with the same rows and columns of whole ones; shares are summed in another order "
    "than one device sums in: errors up to {tolerance:.0e} of the largest value (or of 1) count as equal"
)


def print_report(report: Report) -> None:
    """The tables of a report; the last line is `tokens identical`, `outputs equal` or says what is not."""
    cuts = [_cut_table(report), _LEGEND] if report.cuts else [_LEGEND.partition(";")[0]]
    if any(cut.piece for cut in report.cuts):
        cuts = [_piece_table(report), _LEGEND, _SHARED.format(tolerance=report.tolerance)]
    costs = [_cost_table(report.cost)] if report.cost else []
    guesses = [_guess_table(report.guessed)] if report.guessed else []
    notes = [*_unknown_notes(report), *([f"note: {report.note}"] if report.note else [])]
    show(_case_table(report), *cuts, *guesses, *costs, *notes, verdict(report))


def _unknown_notes(report: Report) -> list[str]:
    """A line about the values that were not compared; empty where all were."""
    if not report.unknown:
        return []
    names = list(dict.fromkeys(value.piece or value.value for value in report.unknown))
    listed = ", ".join(names[:_WRONG]) + (", …" if len(names) > _WRONG else "")
    count = f"{len(names)} value{'s' if len(names) > 1 else ''}"
    return [
        f"not compared: {count} without a counterpart in {report.against} that is known: {listed}; "
        "an error there shows in what is computed of them"
    ]


def _case_table(report: Report) -> Table:
    rows = [
        [
            case.what,
            "-" if case.tokens is None else f"{case.identical} of {case.tokens}",
            f"{case.max_abs_error:.1e}",
        ]
        for case in report.cases
    ]
    title = f"Requests (beside {report.against})" if report.quantized else "Requests"
    return table(title, ["request", "identical", "error"], rows, right=["identical", "error"])


def _cut_table(report: Report) -> Table:
    rows = [
        [
            cut.sender,
            cut.receiver,
            cut.value,
            f"{cut.max_abs_error:.1e}",
            f"{cut.largest:.3g}",
        ]
        for cut in report.cuts
    ]
    return table("Cuts", ["from", "to", "value", "error", "largest"], rows, right=["error", "largest"])


def _piece_table(report: Report) -> Table:
    """A row for each value whose pieces crossed links, and one for each piece that is wrong."""
    wholes: dict[str, list[CutError]] = {}
    for cut in report.cuts:
        wholes.setdefault(cut.piece.rpartition(" of ")[2], []).append(cut)
    rows = []
    for name, cuts in wholes.items():
        pieces = len({cut.value for cut in cuts})
        senders, receivers = (
            ", ".join(sorted({*names})) for names in ([c.sender for c in cuts], [c.receiver for c in cuts])
        )
        what = name if pieces == 1 else f"{name} in {pieces} pieces"
        rows.append([senders, receivers, what, *_figures(cuts)])
    for cut in report.wrong[:_WRONG]:
        rows.append([cut.sender, cut.receiver, f"WRONG: {cut.piece}", *_figures([cut])])
    return table("Cuts", ["from", "to", "value", "error", "largest"], rows, right=["error", "largest"])


def _figures(cuts: Sequence[CutError]) -> list[str]:
    return [f"{max(cut.max_abs_error for cut in cuts):.1e}", f"{max(cut.largest for cut in cuts):.3g}"]


def _guess_table(guessed: Sequence[Guessed]) -> Table:
    rows = [
        [
            each.what,
            each.drafts,
            f"{each.identical} of {each.tokens}",
            f"{each.accepted} of {each.drafted}",
            f"{each.accepted / each.tokens:.0%}" if each.tokens else "-",
            f"{each.plain_s / each.drafted_s:.2f}" if each.drafted_s else "-",
        ]
        for each in guessed
    ]
    columns = ["request", "guessed from", "identical", "right", "of all", "times as fast"]
    return table("Guessed tokens (beside none)", columns, rows, right=columns[2:])


def _cost_table(cost: Cost) -> Table:
    """The figures of the quantised model beside the original, one a row."""
    block = f", block {cost.block}" if {cost.weights, cost.head, cost.embeddings} & BLOCKWISE else ""
    cache = "" if cost.cache == "none" else f", cache {cost.cache}"
    parts = f"weights {cost.weights}, head {cost.head}, embeddings {cost.embeddings}{block}{cache}"
    rows = [["precision", parts]]
    count = "" if cost.tokens is None else f", {cost.tokens} prediction{'' if cost.tokens == 1 else 's'}"
    rows.append(["measured on", cost.text + count])
    if cost.top1_agreement is not None:
        rows.append(["top-1 agreement", f"{cost.top1_agreement:.2%}"])
    if cost.kl_nats is not None:
        rows.append(["KL divergence", f"{cost.kl_nats:.3g} nats per prediction"])
    if cost.perplexity is not None and cost.perplexity_full is not None:
        rows.append(["perplexity", f"{cost.perplexity:.4g}, of the original {cost.perplexity_full:.4g}"])
    if cost.max_abs_error is not None:
        rows.append(["largest error of outputs", f"{cost.max_abs_error:.1e}"])
    return table("What quantisation costs (beside the original)", ["figure", "value"], rows)


def verdict(report: Report) -> str:
    """One line."""
    if report.equal:
        return "outputs equal" if report.identical_tokens is None else "tokens identical"
    first = next((cut for cut in report.wrong if cut.piece), None)
    where = f"; the first is {first.piece}, which {first.sender} sends to {first.receiver}" if first else ""
    if any(each.tokens != each.identical for each in report.guessed):
        return "NOT EQUAL: guesses change tokens"
    if report.identical_tokens is False:
        return f"NOT EQUAL: tokens differ{where.replace('the first', 'the first wrong value')}"
    return f"NOT EQUAL: an error is larger than {report.tolerance:.0e} allows{where}"
