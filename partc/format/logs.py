"""Events of a log: all that runners and servers tell of what happens to a ring.

This table is the one home of their names, levels, fields and sentences: the runner in Python reads it, the one in C++
is given it as `logs.gen.hpp`, and docs/logs.md is written from it. A field is never a prompt, a text, a token or a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The least important first."""
NO_LEVEL = "none"
"""As a level that is wanted: nothing is written."""
FORMATS = ("text", "json")
SERVER = "server"
"""Stands for the device in lines of `partc serve`."""
STRANGERS_EVERY_S = 60
"""The least time from one line of strangers to the next: whoever reaches a port can connect as often as it likes."""

Value = str | int | float
"""Of a field; a float is a time in seconds, and written with three decimals."""
Where = Literal["device", "source", "server"]
"""Teller of an event: any device, the source of a ring, or `partc serve`."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An event."""

    name: str
    level: Level
    where: tuple[Where, ...]
    fields: tuple[str, ...]
    """Names of `FIELDS`, in the order in which they are written."""
    sentence: str
    """For people; `{field}` stands for the value of a field."""


FIELDS: Mapping[str, str] = {
    "address": "HOST:PORT, or the address of the server",
    "cause": "kind of the reason, as in docs/wire.md",
    "client": "HOST of a client",
    "connections": "count of them since the last such line",
    "computes": "sub-modules that the device computes, such as `0-4 9`; empty: none",
    "devices": "names of devices, with `, ` between them",
    "epoch": "epoch of a placement",
    "exit_code": "exit code of the process",
    "finish": "reason why the answer ended: `stop` or `length`",
    "outcome": "`ok`, `cancelled`, `refused`, `failed` or `timeout`",
    "path": "path of a request",
    "peer": "name of another device",
    "reason": "the reason, in words",
    "repeated": "steps that were computed again",
    "request": "number of the request at the source, -1: it had not begun",
    "ring": "name of a ring",
    "seconds": "seconds that it took",
    "status": "status of an answer by HTTP",
    "stopped_s": "seconds for which requests stood still",
    "tokens": "count of tokens of the answer",
}
"""Field → what it holds."""

_ANY: tuple[Where, ...] = ("device", "source")
_SOURCE: tuple[Where, ...] = ("source",)
_SERVER: tuple[Where, ...] = ("server",)

EVENTS: tuple[LogEvent, ...] = (
    # the process
    LogEvent("listening", "info", (*_ANY, "server"), ("address",), "listens on {address}"),
    LogEvent("stopping", "info", (*_ANY, "server"), ("reason",), "stops: {reason}"),
    LogEvent("failed", "error", _ANY, ("cause", "reason", "exit_code"), "ends with exit code {exit_code}: {reason}"),
    LogEvent(
        "address-unknown", "warning", _ANY, ("peer",),
        "the address of {peer} is not known yet; --peer {peer}=HOST:PORT tells it",
    ),
    LogEvent("address-refused", "warning", _ANY, ("peer", "reason"), "{reason}"),
    # connections
    LogEvent("linked", "info", ("device",), (), "all links of this device stand"),
    LogEvent("complete", "info", _SOURCE, (), "the ring is complete"),
    LogEvent("joined", "info", _ANY, ("peer",), "{peer} has connected"),
    LogEvent("back", "info", _ANY, ("peer", "seconds"), "{peer} is back after {seconds} s"),
    LogEvent("disconnected", "warning", _ANY, ("peer",), "the connection of {peer} is closed"),
    LogEvent("link-up", "debug", _ANY, ("peer",), "the link to {peer} stands"),
    LogEvent("link-down", "warning", _ANY, ("peer",), "the link to {peer} is down"),
    LogEvent("refused", "warning", _ANY, ("cause", "reason"), "a connection is refused: {reason}"),
    LogEvent(
        "strangers", "warning", _ANY, ("connections",),
        "connections that spoke another protocol, or had no key of this ring: {connections}",
    ),
    LogEvent("misfit", "error", _ANY, ("cause", "reason"), "this device does not fit the ring: {reason}"),
    # the ring
    LogEvent("stalled", "warning", _SOURCE, ("devices", "reason"), "a request stands still: {reason}"),
    LogEvent(
        "lost", "warning", _SOURCE, ("devices",),
        "what {devices} had is lost; requests go on from what the others have",
    ),
    LogEvent("broken", "error", _SOURCE, ("devices",), "lost for good: {devices}; no placement does without"),
    LogEvent(
        "healed", "info", _SOURCE, ("reason", "seconds"),
        "the ring goes on ({reason}); requests stood still for {seconds} s",
    ),
    LogEvent(
        "moved", "info", _SOURCE, ("reason", "seconds", "stopped_s"),
        "sub-modules have moved in {seconds} s ({reason}); requests stood still for {stopped_s} s",
    ),
    LogEvent(
        "epoch", "info", _ANY, ("epoch", "computes"), "epoch {epoch}: this device computes sub-modules [{computes}]"
    ),
    LogEvent(
        "dropped", "warning", _ANY, ("epoch", "cause", "reason"), "the change to epoch {epoch} is given up: {reason}"
    ),
    # requests
    LogEvent(
        "request-ended", "info", _SOURCE, ("request", "finish", "tokens", "seconds", "repeated"),
        "request {request} ended ({finish}) after {tokens} tokens and {seconds} s",
    ),
    LogEvent(
        "request-failed", "warning", _SOURCE, ("request", "cause", "reason", "tokens", "seconds"),
        "request {request} failed after {tokens} tokens and {seconds} s: {reason}",
    ),
    LogEvent("request-refused", "warning", _SOURCE, ("cause",), "a request is refused ({cause})"),
    # partc serve
    LogEvent("ring-ready", "info", _SERVER, ("ring",), "the ring {ring} is ready"),
    LogEvent("ring-lost", "warning", _SERVER, ("ring", "reason"), "the ring {ring} is lost: {reason}"),
    LogEvent("ring-ended", "error", _SERVER, ("ring", "reason"), "the ring {ring} has ended: {reason}"),
    LogEvent("device-lost", "warning", _SERVER, ("ring", "peer"), "{peer} is not in the ring {ring} any more"),
    LogEvent("device-back", "info", _SERVER, ("ring", "peer"), "{peer} is in the ring {ring} again"),
    LogEvent(
        "changed", "info", _SERVER, ("ring", "epoch", "reason", "stopped_s"),
        "the ring {ring} is in epoch {epoch} ({reason}); requests stood still for {stopped_s} s",
    ),
    LogEvent("cannot", "info", _SERVER, ("ring", "reason"), "the ring {ring}: {reason}"),
    LogEvent(
        "answered", "info", _SERVER, ("path", "outcome", "status", "client", "seconds"),
        "{path}: {outcome} ({status}) in {seconds} s",
    ),
)  # fmt: skip

BY_NAME: Mapping[str, LogEvent] = {event.name: event for event in EVENTS}


def is_written(event: LogEvent, least: str) -> bool:
    """Whether an event is written where `least` is the least level that is wanted, or `none`."""
    return least != NO_LEVEL and LEVELS.index(event.level) >= LEVELS.index(least)


def ranges_text(stretches: Sequence[tuple[int, int]]) -> str:
    """Sub-modules as `0-4 9`."""
    return " ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in stretches)
