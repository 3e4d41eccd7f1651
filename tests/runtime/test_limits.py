"""The largest frames that anybody takes come from the placement."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from partc.format.build import TensorType
from partc.format.codec import encode
from partc.format.fields import FRAME_LIMIT
from partc.format.message_parts import Held, Reached, Resumption, Row, Sampling, TensorSpec
from partc.format.messages import AnyMessage, Commit, Prepare, Prepared, Submit
from partc.format.role import Role
from partc.runtime.shell.limits import client_frame_limit, frame_limit, header_limit
from tests.runtime.bundles import HIDDEN, LENGTH
from tests.runtime.core.link_end import End
from tests.runtime.core.roles import GREEDY, changed, encoder, graph, roles, step_of


def of(role: Role, **changes: Any) -> Role:
    return changed(role, model=replace(role.model, **changes), dims={"batch": 3, "sequence": 4096})


def test_small_models_take_what_everybody_takes() -> None:
    role = roles()["b"]
    assert header_limit(role) == frame_limit(role) == client_frame_limit(role) == FRAME_LIMIT


def test_values_that_a_device_receives() -> None:
    """Those that it makes or sends do not count."""
    large = of(roles()["b"])
    assert frame_limit(large) == 3 * 4096 * HIDDEN * 4
    assert frame_limit(of(roles()["a"])) == 3 * 4096 * 8, "tokens and input_ids"


def test_values_that_a_device_may_receive_under_another_placement() -> None:
    """An idle device runs nothing yet; a copy that it holds may be its next."""
    large = of(roles()["b"])
    programs = {phase: {"a": "emit input_ids\n"} for phase in ("prefill", "decode")}
    idle = Role(large.build, replace(large.placement, ring=("a",), programs=programs))
    assert not any(idle.programs.values())
    assert frame_limit(idle) == frame_limit(large)


def test_tensors_that_clients_send_count_at_the_source() -> None:
    role = graph()
    assert frame_limit(changed(role, dims={"rows": 1 << 20})) == (1 << 20) * 4 * 4
    assert client_frame_limit(changed(role, dims={"rows": 1 << 20})) == (1 << 20) * 4 * 4


def test_prompts_of_clients_fit_into_a_header_of_the_source() -> None:
    role = of(roles()["a"], max_batch=3, max_sequence=4096)
    prompts = ((2**64 - 1,) * 4096,) * 3
    submit = Submit(
        ticket=bytes(16),
        prompts=prompts,
        max_new_tokens=2**64 - 1,
        sampling=GREEDY,
        stop=(2**64 - 1,) * 100,
        ignore_eos=False,
        trace=False,
        values=(),
    )
    assert FRAME_LIMIT < len(encode(submit)) <= header_limit(role)
    assert header_limit(of(roles()["b"], max_batch=3, max_sequence=4096)) == FRAME_LIMIT


def test_the_longest_header_of_values_fits() -> None:
    role = roles()["b"]
    names = {f"{number:0>300}": TensorType("float32", (1,)) for number in range(300)}
    wide = changed(role, values=names)
    end = End()
    end.link("c")
    message = end.out("c", step_of(2**64 - 1, 1, slot=0), (), []).message
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    values = tuple(TensorSpec(name, "float32", (2**64 - 1,)) for name in names)
    rows = tuple(Row(*(2**64 - 1,) * 5) for _ in range(3))
    longest = type(message)(**{**fields, "values": values, "rows": rows})
    assert FRAME_LIMIT < len(encode(longest)) <= header_limit(wide)


MOST = 2**64 - 1


def changes(role: Role) -> list[AnyMessage]:
    """The longest messages about a change of a placement of this build."""
    requests, sequences = range(role.model.max_requests), range(role.model.max_batch)
    pieces = ("part_0", "part_1", "part_2")
    resumption = Resumption(
        request=MOST,
        slot=MOST,
        sampling=Sampling(1.5, MOST, 0.5, MOST),
        trace=True,
        step=MOST,
        phase="prefill",
        ends=tuple(tuple(MOST for _ in sequences) for _ in range(role.model.most_chunks)),
    )
    have = tuple(Held(MOST, piece, MOST) for _ in requests for piece in pieces)
    return [
        Prepare(
            epoch=MOST,
            placement=bytes(32),
            addresses=dict.fromkeys(role.addresses, "x" * 300),
            holders=dict.fromkeys(pieces, "a"),
            requests=tuple(Reached(MOST, MOST, MOST) for _ in requests),
            stands_still=False,
        ),
        Prepared(epoch=MOST, incarnation=MOST, have=have),
        Commit(
            epoch=MOST, placement=bytes(32), incarnation=MOST, requests=tuple(resumption for _ in requests)
        ),
    ]


@pytest.mark.parametrize("size", [{"max_requests": 3}, {"max_requests": 4000}, {"max_batch": 9000}])
@pytest.mark.parametrize("device", ["a", "b", "c"])
def test_a_change_of_placement_fits_into_a_header(device: str, size: dict[str, int]) -> None:
    role = of(roles()[device], **size)
    longest = max(len(encode(message)) for message in changes(role))
    assert longest <= header_limit(role)
    assert size == {"max_requests": 3} or longest > FRAME_LIMIT


def test_tokens_of_a_result_fit_into_a_frame_of_the_client() -> None:
    role = of(encoder(), max_batch=8, max_sequence=LENGTH * 1000)
    assert client_frame_limit(role) > 8 * LENGTH * 1000 * 9
