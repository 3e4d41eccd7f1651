"""The command line: one command a file; `main.exit_code` is the one place that makes exit codes."""

from __future__ import annotations
