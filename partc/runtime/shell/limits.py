"""The largest size of messages: larger frames are refused before memory is taken for them."""

from __future__ import annotations

from partc.format.fields import FRAME_LIMIT
from partc.format.program import Run
from partc.format.role import Role

_HEADER_BYTES = 4096
_INT_BYTES = 9
"""The longest msgpack integer."""
_ADDRESS_BYTES = 4 * 300 + 16
"""An address, which has at most 300 characters."""
_RESUMPTION_BYTES = 512
"""More than the names, the numbers and the sampling of a `Resumption`, without its positions."""


def header_limit(role: Role) -> int:
    """The longest header that a device takes, bytes: of values, or of a change of placement.

    The source's covers a client's prompts.
    """
    model = role.model
    names = sum(64 + 4 * len(name) for name in (*role.types, *role.dims))
    rows = 6 * max(model.max_batch, model.most_rows) * _INT_BYTES
    prompts = model.max_batch * model.max_sequence * _INT_BYTES if role.is_source else 0
    return max(FRAME_LIMIT, _HEADER_BYTES + names + rows + prompts, _HEADER_BYTES + _change_bytes(role))


def _change_bytes(role: Role) -> int:
    """The longest list of `prepare` with its addresses, `prepared` or `commit`, bytes."""
    model = role.model
    devices = [4 * len(name) for name in role.addresses]
    pieces = [4 * len(name) for name in _pieces(role)]
    addresses = sum(devices) + len(devices) * _ADDRESS_BYTES
    holders = sum(pieces) + len(pieces) * (max(devices) + _INT_BYTES)
    held = sum(pieces) + len(pieces) * 3 * _INT_BYTES
    resumption = _RESUMPTION_BYTES + model.most_chunks * (model.max_batch + 1) * _INT_BYTES
    return addresses + holders + model.max_requests * max(held, resumption)


def _pieces(role: Role) -> set[str]:
    """The sub-modules of all devices; graphs are cut alike for every placement, so no other placement runs more."""
    programs = (program for phase in role.placement.parsed.values() for program in phase.values())
    running = {item.submodule for program in programs for item in program if isinstance(item, Run)}
    return running | set(role.submodules)


def frame_limit(role: Role) -> int:
    """The largest frame that a device takes, bytes: a header, or the largest tensor that it may receive.

    That is under any placement: what a device is sent is an input of one of its sub-modules, running now or not; the
    source is sent inputs and outputs of the whole model, too.
    """
    names = {name for module in role.submodules.values() for name in module.inputs}
    names |= {*role.inputs, *role.outputs} if role.is_source else set()
    of_rows = {**role.dims, "batch": role.model.most_rows, "sequence": 1}
    sizes = [role.types[name].bytes(dims) for name in names for dims in (role.dims, of_rows)]
    return max([header_limit(role), *sizes])


def client_frame_limit(role: Role) -> int:
    """The largest frame that a client takes, bytes: the tokens of a result, or an output; `role` is the source's."""
    model = role.model
    tokens = model.max_batch * model.max_sequence * _INT_BYTES
    tensors = [tensor.bytes(role.dims) for tensor in role.outputs.values()]
    return max([FRAME_LIMIT, _HEADER_BYTES + tokens, *tensors])
