"""`partc-runner`: the runner of one device.

Nothing heavy is imported before the command line is understood.
"""

from __future__ import annotations

import argparse
import errno
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from partc import __version__
from partc.errors import InternalError, PartcError, RunError
from partc.format.address import has_port
from partc.format.logs import FORMATS, LEVELS, NO_LEVEL
from partc.printable import printable
from partc.runtime.core.liveness import LEAST_PATIENCE_S, LINGER_S, MOST_S, REJOIN_S
from partc.runtime.shell.log import LogSettings, LogWriter
from partc.runtime.shell.settings import Settings

_EXAMPLES = """\
examples:
  partc-runner --bundle build/devices/phone
      addresses as in devices.yaml
  partc-runner --bundle phone --listen 0.0.0.0:5555 --peer board=192.0.2.7:5555
  partc-runner --bundle phone --listen 0.0.0.0:5555 --advertise 198.51.100.4:15555
      the others reach this device through a router
  partc-runner --bundle profile/devices/phone --listen 0.0.0.0:5555 --measure

exit codes:
  0 stopped when asked to, 1 wrong bundle, keys or address, 2 usage,
  70 a bug of partc, 130 interrupted before it began
"""


_REFUSED = {
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}
"""Answers of the system that are no bug, where it names a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a device until it is stopped; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except PartcError as error:
        return _fail(error, options)
    except OSError as error:
        if error.errno not in _REFUSED or error.filename is None:
            return _bug(error, options)
        hint = "see that it is there, and that this user may read it"
        return _fail(RunError(str(error.strerror), where=str(error.filename), hint=hint), options)
    except Exception as error:
        return _bug(error, options)


def _bug(error: Exception, options: argparse.Namespace) -> int:
    _log_failure(InternalError(f"{type(error).__name__}: {error}"), options)
    print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    print("error: this is a bug of partc; please report it with the lines above", file=sys.stderr)
    if options.stdio:
        _say_last_words(error)
    return 70


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="partc-runner",
        description="Run one device's part of a compiled model, as one of a ring.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--bundle",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder of the device: build/devices/NAME",
    )
    parser.add_argument("--listen", type=_address, metavar="HOST:PORT", help="where peers reach this device")
    parser.add_argument(
        "--peer", type=_peer, action="append", default=[], metavar="NAME=HOST:PORT", help="where a device is"
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        type=_host,
        help="where peers reach this device, if not where it listens (default: its address on the way to each)",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="no encryption and no keys; loopback addresses only"
    )
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=LEAST_PATIENCE_S,
        metavar="SECONDS",
        help="a peer without progress for this long, or 4 x the predicted step, counts as gone (default: %(default)g)",
    )
    parser.add_argument(
        "--rejoin",
        type=_seconds_or_none,
        default=REJOIN_S,
        metavar="SECONDS",
        help="at the source: how long requests wait for a device that is lost, 0: not at all (default: %(default)g)",
    )
    parser.add_argument(
        "--linger",
        type=_seconds_or_none,
        default=LINGER_S,
        metavar="SECONDS",
        help="at the source: how long a request goes on whose client is gone, 0: not at all (default: %(default)g)",
    )
    parser.add_argument(
        "--frugal",
        action="store_true",
        help="sleep until a message comes, which saves power: this runner always does, the native one may spin first",
    )
    parser.add_argument(
        "--stdio",
        action="store_true",
        help="for programs: JSON lines in (peers) and out (progress); ends with standard input",
    )
    parser.add_argument(
        "--log-level",
        choices=(*LEVELS, NO_LEVEL),
        metavar="LEVEL",
        help="tell on standard error what happens: debug, info, warning, error and above, or none "
        "(default: info; none with --stdio)",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        metavar="FORMAT",
        help="lines of the log: text or json (default: text)",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure this device for partc profile, instead of running a model",
    )
    parser.add_argument("--version", action="version", version=f"partc-runner {__version__}")
    return parser


def _run(options: argparse.Namespace) -> int:
    from partc.runtime.shell.descriptors import raise_limit

    raise_limit()  # before anything else is opened
    if options.stdio:
        _die_with_parent()
    settings = Settings(
        bundle=options.bundle,
        listen=options.listen,
        peers=dict(options.peer),
        insecure=options.insecure,
        patience_s=options.patience,
        rejoin_s=options.rejoin,
        linger_s=options.linger,
        advertise=options.advertise,
        stdio=options.stdio,
        log=_log(options),
    )
    if options.measure:
        from partc.runtime.measure.service import MeasureService

        MeasureService(settings).serve()
        return 0
    from partc.runtime.shell.runner import Runner

    Runner(settings).serve()
    return 0


def _log(options: argparse.Namespace) -> LogSettings:
    return LogSettings(options.log_level or (NO_LEVEL if options.stdio else "info"), options.log_format)


def _die_with_parent() -> None:
    """Linux kills this process when the thread that started it ends, even while it is stopped or computes."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


def _fail(error: PartcError, options: argparse.Namespace) -> int:
    """Say what is wrong, for people and, as the last line of standard output, for the program that started us."""
    _log_failure(error, options)
    place = f"{error.where}: " if error.where else ""
    print(printable(f"error: {place}{error.message}"), file=sys.stderr)
    if error.hint:
        print(printable(f"  hint: {error.hint}"), file=sys.stderr)
    if options.stdio:
        _say_last_words(error)
    return error.exit_code


def _log_failure(error: PartcError, options: argparse.Namespace) -> None:
    """The last line of a log of JSON; in one of text the lines for people say it.

    The name of the folder stands for the device, which may not be known.
    """
    settings = _log(options)
    if settings.format != "json":
        return
    cause = getattr(error, "cause", "input" if error.exit_code == 1 else "bug")
    fields = {"cause": cause, "reason": error.message, "exit_code": error.exit_code}
    LogWriter(options.bundle.resolve().name, settings).write("failed", fields)


def _say_last_words(error: Exception) -> None:
    from partc.runtime.shell.last_words import say_last_words

    say_last_words(error)


def _address(text: str) -> str:
    if not has_port(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return text


def _host(text: str) -> str:
    if not (has_port(text) or has_port(f"{text}:0")):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST or HOST:PORT")
    return text


def _peer(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=HOST:PORT")
    return name, _address(address)


def _seconds(text: str) -> float:
    value = _seconds_or_none(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _seconds_or_none(text: str) -> float:
    """Plain decimal numbers alone, as in the native runner; `float` takes spaces, `1_0` and `nan` as well."""
    try:
        value = -1.0 if set(text) - set("0123456789.eE+-") else float(text)
    except ValueError:
        value = -1.0
    if value < 0.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    if value > MOST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is too long: {MOST_S:.0f} seconds at most")
    return value
