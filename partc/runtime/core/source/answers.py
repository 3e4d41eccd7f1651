"""Messages of the source to a client about its request, and how they end it."""

from __future__ import annotations

from collections.abc import Mapping

from partc.errors import RunError
from partc.format.build import TensorType
from partc.format.frames import to_frame
from partc.format.logs import Value
from partc.format.message_parts import Problem
from partc.format.messages import Crossed, Error, Result, Stats, Submit, Timings, Trace
from partc.runtime.core.commands import Log, Send
from partc.runtime.core.events import Origin
from partc.runtime.core.source.job import Job
from partc.runtime.core.source.orphans import Ending
from partc.runtime.core.step import announced


def result_of(job: Job, types: Mapping[str, TensorType], now: float) -> Ending:
    """The result of a request that is over, and its frames."""
    result = Result(
        ticket=job.ticket,
        tokens=tuple(map(tuple, job.tokens)),
        finish=tuple(job.finish),
        elapsed_s=max(0.0, now - job.submitted),
        replayed=job.replayed,
        mismatches=job.mismatches,
        reused=0 if job.reuse is None else job.reuse.rows,
        drafted=0 if job.window is None else job.window.drafted,
        accepted=0 if job.window is None else job.window.accepted,
        values=announced(job.outputs.items(), types),
    )
    return result, [to_frame(array) for array in job.outputs.values()]


def stats_of(job: Job, message: Timings) -> Stats:
    """The times of a request on a device."""
    return Stats(ticket=job.ticket, device=message.device, columns=message.columns, values=message.values)


def trace_of(job: Job, message: Crossed) -> Trace:
    """Tensors that a device received."""
    return Trace(
        ticket=job.ticket,
        device=message.device,
        peer=message.peer,
        step=message.step,
        values=message.values,
    )


def ended(job: Job, ending: Result | Error, now: float) -> Log:
    """The line of the log about the end of a request."""
    fields: dict[str, Value] = {"request": job.number}
    counts: dict[str, Value] = {"tokens": sum(map(len, job.tokens)), "seconds": max(0.0, now - job.submitted)}
    if isinstance(ending, Error):
        problem = ending.problem
        return Log("request-failed", fields | {"cause": problem.cause, "reason": problem.message} | counts)
    finish = ", ".join(dict.fromkeys(job.finish))
    return Log("request-ended", fields | {"finish": finish} | counts | {"repeated": job.replayed})


def refusal(origin: Origin, submit: Submit, error: RunError) -> tuple[Send, Log]:
    """The answer to a request that is not taken; its reason may name tokens, which no log does."""
    answer = Send(origin, Error(ticket=submit.ticket, problem=Problem.of(error)))
    return answer, Log("request-refused", {"cause": error.cause})
