"""Fields that several messages have: their types, with ranges and meanings, as docs/wire.md prints them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

FRAME_LIMIT = 64 * 1024
"""Every participant takes frames of this size, bytes; so control messages never depend on the build."""

_MOST_COUNTED = 2**62
"""The highest request and epoch that are believed: whoever counts on can always send the next one."""
Count = Annotated[int, Meta(ge=0)]
"""A msgpack integer from 0 to 2^64 - 1."""
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
"""A SHA-256."""
Text = Annotated[str, Meta(max_length=FRAME_LIMIT)]
LONGEST_CAUSE = 300
Cause = Annotated[str, Meta(max_length=LONGEST_CAUSE)]
"""Words for those who watch: several lie in one message."""

Session = Annotated[int, Meta(ge=0, description="This life of the sender's end of the link.")]
Epoch = Annotated[int, Meta(ge=0, le=_MOST_COUNTED, description="Epoch of the placement in force.")]
NextEpoch = Annotated[int, Meta(ge=1, description="Epoch of the placement that follows.")]
NextPlacement = Annotated[
    bytes, Meta(min_length=32, max_length=32, description="`placement_id` of the placement that follows.")
]
Address = Annotated[str, Meta(max_length=300)]
SubmoduleName = Annotated[str, Meta(description="Name of the sub-module.")]
PlacementId = Annotated[
    bytes, Meta(min_length=32, max_length=32, description="`placement_id` of the placement in force.")
]
Incarnation = Annotated[
    int, Meta(ge=0, description="64 random bits, drawn when the sender's process started.")
]
_TICKET = (
    "Random bytes by which a client names its request: all clients share one key, so a number would not do."
)
Ticket = Annotated[bytes, Meta(min_length=16, max_length=16, description=_TICKET)]
RequestNumber = Annotated[
    int, Meta(ge=0, le=_MOST_COUNTED, description="Number of the request at the source.")
]
StepNumber = Annotated[int, Meta(ge=0, description="Number of the step, as in `rows`.")]
TokenNumber = Annotated[
    int, Meta(ge=0, description="Number of the token, from 0; all parts of a prompt together are 0.")
]
Reporter = Annotated[str, Meta(description="Device that reports.")]
Columns = Annotated[tuple[str, ...], Meta(description="Names of the table's columns.")]
Echo = Annotated[int, Meta(ge=0, description="Any number; the answer has the same.")]
