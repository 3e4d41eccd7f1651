"""What `partc verify` prints: a row for each request and each cut, and the verdict as the last line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from partc.cli.tables import show, table

if TYPE_CHECKING:
    from partc.verify.report import Report

_LEGEND = "error: largest absolute difference; largest: largest absolute value"


def print_report(report: Report) -> None:
    """The tables of a report; the last line is `tokens identical`, `outputs equal` or says what is not."""
    cuts = [_cut_table(report), _LEGEND] if report.cuts else [_LEGEND.partition(";")[0]]
    show(_case_table(report), *cuts, verdict(report))


def _case_table(report: Report) -> Table:
    rows = [
        [
            case.what,
            "-" if case.tokens is None else f"{case.identical} of {case.tokens}",
            f"{case.max_abs_error:.1e}",
        ]
        for case in report.cases
    ]
    return table("Requests", ["request", "identical", "error"], rows, right=["identical", "error"])


def _cut_table(report: Report) -> Table:
    rows = [
        [cut.sender, cut.receiver, cut.value, f"{cut.max_abs_error:.1e}", f"{cut.largest:.3g}"]
        for cut in report.cuts
    ]
    return table("Cuts", ["from", "to", "value", "error", "largest"], rows, right=["error", "largest"])


def verdict(report: Report) -> str:
    """One line."""
    if report.equal:
        return "outputs equal" if report.identical_tokens is None else "tokens identical"
    if report.identical_tokens is False:
        return "NOT EQUAL: tokens differ"
    return f"NOT EQUAL: an error is larger than {report.tolerance:.0e} allows"
