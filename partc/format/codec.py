"""The bytes of a message's header, read strictly."""

from __future__ import annotations

import msgspec

from partc.errors import RunError
from partc.format.messages import VERSION, AnyMessage, Message

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: Message) -> bytes:
    """The header frame of a message."""
    return _ENCODER.encode(message)


def decode(frame: bytes | memoryview, limit: int) -> AnyMessage:
    """The message that a header frame holds.

    Raises:
        RunError: too long, not msgpack, another version, an unknown kind, a field too many or too few or wrong.
    """
    if len(frame) > limit:
        raise RunError(f"a header of {len(frame)} bytes, at most {limit} are allowed", cause="refused")
    try:
        return _DECODER.decode(frame)
    except (ValueError, RecursionError) as error:
        raise _unreadable(frame, error) from None


def _unreadable(frame: bytes | memoryview, error: Exception) -> RunError:
    """Say what is wrong with a header: first of all, whether it is of another version."""
    try:
        version = msgspec.msgpack.decode(frame).get("v", VERSION)
    except (ValueError, RecursionError, AttributeError):
        version = VERSION
    if version != VERSION:
        hint = "install the same version of partc on all devices"
        return RunError(
            f"wire version {version!r:.20}, this end speaks {VERSION}", hint=hint, cause="refused"
        )
    return RunError(f"a message that cannot be read: {error}", cause="refused")
