"""Errors as clients of the API get them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partc.errors import PartcError, RunError

_CAUSES = {
    "input": (400, "invalid_request_error", None),
    "refused": (503, "server_error", "ring_unavailable"),
    "lost-peer": (503, "server_error", "ring_unavailable"),
    "stalled": (503, "server_error", "ring_unavailable"),
    "bug": (500, "server_error", "internal_error"),
}
"""Cause of a RunError → status, type and code."""
RETRY_S = 2
"""Seconds after which a client may try again."""


class ApiError(PartcError):
    """An answer that is an error; all four fields are always there, since clients read them."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.kind = kind
        """`type` of the error."""
        self.param = param
        """Field of the body that is wrong."""
        self.code = code
        """A word that programs decide by."""
        retry = {"retry-after": str(RETRY_S)} if status in (429, 503) else {}
        self.headers = {**retry, **(headers or {})}

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


def api_error(error: PartcError) -> ApiError:
    """The answer to a client for an error of the ring."""
    if isinstance(error, ApiError):
        return error
    cause = error.cause if isinstance(error, RunError) else "input" if error.exit_code == 1 else "bug"
    status, kind, code = _CAUSES[cause]
    hint = f"; {error.hint}" if error.hint and cause == "input" else ""
    place = f"{error.where}: " if error.where else ""
    return ApiError(f"{place}{error.message}{hint}", status=status, kind=kind, code=code)


def unsupported(param: str, why: str) -> ApiError:
    """About a field of the API that this server does not have."""
    return ApiError(f"{param}: {why}", param=param, code="unsupported_parameter")
