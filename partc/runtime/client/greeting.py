"""The greeting of clients."""

from __future__ import annotations

from partc.format.messages import CLIENT, Hello
from partc.format.role import Role


def client_hello(role: Role) -> Hello:
    """The greeting of every client."""
    return Hello(
        name=CLIENT,
        session=0,
        plan=role.plan_digest,
        placement=role.placement_digest,
        epoch=role.epoch,
        incarnation=0,
    )
