"""Ctrl-C and SIGTERM: a clean end at any moment of a command, with the exit code that shells expect.

Python raises KeyboardInterrupt wherever the main thread happens to be. In the middle of an import that leaves half a
module behind: an ImportError of somebody else, a RuntimeError of a class body, even a crash in a library's start.

| moment | Ctrl-C or SIGTERM |
| --- | --- |
| before the command begins | ends the process at once |
| while a module is imported | waits until that is done, at most a second; then, or at the second one, ends at once |
| any other | raises KeyboardInterrupt, or SystemExit(143); again, if a destructor swallowed it |
| while it is cleaned up | a second one ends the process at once |
| after the command | is ignored |

As little as can be is imported here: until `arm` has run, Python's own way applies.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

_AGAIN_S = 0.01
_IMPORT_S = 1.0
_IMPORT = "<frozen importlib."
_asked: list[int] = []
"""The signals that came."""
_waited: list[float] = []
"""How long an import has been waited for, piece by piece."""
_running: list[bool] = []
"""Whether the command has begun."""
_last_acts: list[Callable[[], None]] = []
"""What is run before the process ends."""


def arm() -> None:
    """Take over both signals; a process that was started with one of them ignored goes on to ignore it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _came)
    signal.signal(signal.SIGALRM, _look)
    sys.unraisablehook = _unraisable


def begin() -> None:
    """From here on there is something to clean up: raise instead of ending the process at once."""
    _running.append(True)


def finish() -> None:
    """Ignore what comes from now on: the command is done, and its exit code stands."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def at_the_end(act: Callable[[], None]) -> None:
    """Run something short where this module ends the process, which leaves no block and runs no exit function."""
    _last_acts.append(act)


def exit_code() -> int | None:
    """The exit code of a process that was asked to end; None where it was not."""
    return 128 + _asked[0] if _asked else None


def leave(code: int) -> NoReturn:
    """End this process without taking libraries apart, which may have been stopped in the middle of their start."""
    import atexit

    _running.clear()
    atexit._run_exitfuncs()
    _end(code)


def _came(number: int, frame: FrameType | None) -> None:
    """Handle the first signal at the right moment, and the second at once."""
    first = not _asked
    _asked.append(number)
    if first and _running:
        _look(number, frame)
    else:
        _end_at_once()


def _look(number: int, frame: FrameType | None) -> None:
    """Raise, unless a module is being imported."""
    if not _asked:  # an alarm that somebody else set, which ends a process
        _asked.append(number)
    if _imports(frame):
        _waited.append(_AGAIN_S)
        if sum(_waited) > _IMPORT_S:
            _end_at_once()
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    elif _asked[0] == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        sys.exit(128 + _asked[0])


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT):
            return True
        frame = frame.f_back
    return False


def _unraisable(problem: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised in a destructor: an interrupt is raised again, behind it."""
    if _asked and isinstance(problem.exc_value, KeyboardInterrupt | SystemExit):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        sys.__unraisablehook__(problem)


def _end_at_once() -> NoReturn:
    if _asked[0] == signal.SIGINT:
        os.write(2, b"interrupted\n")
    _end(128 + _asked[0])


def _end(code: int) -> NoReturn:
    while _last_acts:
        try:
            _last_acts.pop()()
        except Exception:  # nothing may keep the process from ending
            continue
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError, AttributeError):
            continue  # closed, or in the middle of writing
    os._exit(code)
