"""The words of libraries, which speak to programmers: none of them reaches the user's terminal.

partc says by itself what a user can act upon. `PYTHONWARNINGS=default` (or `python -W default -m partc.cli`) brings the
warnings back, for those who work on partc.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

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
