"""Messages held against the right to send them, before anything is done with them.

The table of rights is that of the wire, `partc/format/messages/rights.py`.
"""

from __future__ import annotations

from functools import cache

from partc.errors import RunError
from partc.format.messages import CLIENT, Message
from partc.format.messages.rights import RIGHTS, Party, When
from partc.format.role import Role
from partc.runtime.core.events import Origin


def is_right(message: Message, peer: str, origin: Origin, role: Role, *, measures: bool = False) -> bool:
    """Whether `peer` may send such a message to the device of a role; one that may not is to be ignored.

    `measures`: the device is one that measures.

    Raises:
        RunError: it is an answer, and came over a connection on which nothing was asked.
    """
    kind, is_back = type(message), isinstance(origin, str)
    if _may_send(kind, _party(peer, role), role.is_source, measures, is_back):
        return True
    if not is_back and all(right.when is When.BACK for right in RIGHTS[kind]):
        raise RunError(f"{peer} answers a question that was not asked", cause="refused")
    return False


def _party(peer: str, role: Role) -> Party:
    if peer == CLIENT:
        return Party.CLIENT
    return Party.SOURCE if peer == role.source else Party.DEVICE


@cache
def _may_send(kind: type[Message], sender: Party, to_source: bool, to_meter: bool, is_back: bool) -> bool:
    """Whether a right fits.

    Args:
        kind: of the message.
        sender: client, source or device.
        to_source: whether the receiver is the source; it is a device in any case.
        to_meter: whether the receiver measures.
        is_back: whether the receiver opened the connection.
    """
    senders = {Party.ANY, sender} | ({Party.DEVICE} if sender is Party.SOURCE else set())
    receivers = {Party.ANY, Party.DEVICE} | ({Party.SOURCE} if to_source else set())
    receivers |= {Party.METER} if to_meter else set()
    return any(
        right.sender in senders
        and right.receiver in receivers
        and {When.FIRST: not is_back, When.BACK: is_back}.get(right.when, True)
        for right in RIGHTS[kind]
    )
