"""The words of libraries, which speak to programmers: none of them reaches the user's terminal.

partc says by itself what a user can act upon. `PYTHONWARNINGS=default` (or `python -W default -m partc.cli`) brings the
warnings back, for those who work on partc.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

_LEVELS = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "HF_HUB_VERBOSITY": "error",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""Variables that libraries read when they are imported, unless the user set them."""


def quieten_libraries() -> None:
    """Silence warnings and the log of this process, and of libraries that it has not imported yet."""
    for name, value in _LEVELS.items():
        os.environ.setdefault(name, value)
    if sys.warnoptions:
        return
    warnings.simplefilter("ignore")
    # A few libraries set filters of their own when they are imported; what passes them is not shown either.
    warnings.showwarning = lambda *arguments, **options: None
    logging.lastResort = logging.NullHandler()


def quieten_transformers(log: Any) -> None:
    """Silence warnings and progress bars of transformers: partc has its own.

    `log`: the module transformers.utils.logging; the runner, which has no transformers, imports this one.
    """
    log.set_verbosity_error()
    log.disable_progress_bar()


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keep back all words of the block: warnings, lines of a log, and what it prints."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sink = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
