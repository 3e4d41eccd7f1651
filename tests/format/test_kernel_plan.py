"""Kernel plans: what the reader refuses, and that nothing it accepts leaves its memory."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from partc.errors import BundleError
from partc.format.kernel_plan import (
    Kernel,
    KernelCall,
    KernelConstant,
    KernelFunction,
    KernelLaunch,
    KernelOutput,
    KernelParameter,
    KernelPlan,
    KernelTensor,
    Place,
    kernel_plan_text,
    kernels_digest,
)
from partc.format.kernel_plan_rules import load_kernel_plan, parse_kernel_plan
from partc.format.layouts import ALIGNMENT
from tests.format.mutations import mutate

Json = Any
MUTATIONS = 10_000


def row(access: str = "read", count: int = 20, dtype: str = "float32") -> KernelParameter:
    return KernelParameter(dtype, (count,), access)  # type: ignore[arg-type]


def call(kernel: str, *places: str) -> KernelCall:
    rooms = {"p": "parameter", "c": "constant", "a": "arena"}
    return KernelCall(kernel, tuple(Place(rooms[place[0]], int(place[1:])) for place in places))  # type: ignore[arg-type]


def sample() -> KernelPlan:
    """Two functions of five kernels; tensors of 80 bytes, so that the arena has gaps of 48."""
    kernels = {
        "add": Kernel((row(), row(), row("write"))),
        "halve": Kernel((row(), row("write", 10), row("write", 10))),
        "join": Kernel((row(count=10), row(count=10), row("write"))),
        "count": Kernel((row(), row("write", 10, "int64"))),
        "put": Kernel((row("update"), row(), row(count=10, dtype="int64"))),
    }
    parameters = (KernelTensor("float32", (4, 5)), KernelTensor("float32", (20,)))
    calls = (
        call("add", "p0", "c0", "a0"),
        call("add", "a0", "p0", "a128"),
        call("count", "a128", "a256"),
        call("halve", "a0", "a384", "a448"),
        call("put", "p1", "a128", "a256"),
        call("join", "a448", "a384", "a0"),
    )
    outputs = (
        KernelOutput("float32", (4, 5), Place("arena", 0)),
        KernelOutput("float32", (20,), Place("parameter", 1)),
    )
    short = KernelFunction(parameters, 128, (call("add", "p1", "p0", "a0"),), outputs)
    functions = {"part_0_b1_s1": short, "part_0_b1_s4": KernelFunction(parameters, 512, calls, outputs)}
    return KernelPlan(
        kernels=kernels, constants=(KernelConstant("float32", (20,), bytes(80)),), functions=functions
    )  # fmt: skip


def sample_for_gpu() -> KernelPlan:
    """The same with launches; `put` has two, and the second takes the parameters in another order."""
    launches = {
        name: (
            KernelLaunch(f"{name}_kernel", (1, 1, 1), (20, 1, 1), 0, tuple(range(len(kernel.parameters)))),
        )
        for name, kernel in sample().kernels.items()
    }
    second = KernelLaunch("put_kernel_1", (2**31 - 1, 2**16 - 1, 3), (4, 4, 64), 1024, (2, 0))
    return sample().with_launches({**launches, "put": (*launches["put"], second)})


def raw() -> Json:
    return json.loads(kernel_plan_text(sample()))


def raw_for_gpu() -> Json:
    return json.loads(kernel_plan_text(sample_for_gpu()))


@pytest.mark.parametrize("made", [sample(), sample_for_gpu()], ids=["processor", "gpu"])
def test_a_plan_is_written_and_read_again(tmp_path: Path, made: KernelPlan) -> None:
    path = tmp_path / "kernels.json"
    path.write_text(kernel_plan_text(made))
    plan = load_kernel_plan(path)
    assert plan == made
    assert plan.arena_bytes == 512


def test_launches_are_a_part_of_the_digest() -> None:
    plan = sample_for_gpu()
    assert kernels_digest(plan.kernels) != kernels_digest(plan.kernels, plan.launches)
    assert "launches" not in raw()


LONG = ("functions", "part_0_b1_s4")
BAD: list[tuple[tuple[Any, ...], Json, str]] = [
    (("format",), "partc-kernels/2", "format: 'partc-kernels/2' cannot be read"),
    (("extra",), 1, "unknown field `extra`"),
    (("kernels", "add", "parameters", 0, "dtype"), "float33", "kernels.add: the element type 'float33' is unknown"),
    (("kernels", "add", "parameters", 0, "shape"), [-20], "expected `int` >= 1"),
    (("kernels", "add", "parameters", 0, "access"), "keep", "invalid enum value 'keep'"),
    (("constants", 0, "data"), "AAAA", "constants[0]: 3 bytes, its shape takes 80"),
    ((*LONG, "calls", 0, "kernel"), "sub", "calls[0] (sub): there is no such kernel"),
    ((*LONG, "calls", 0, "kernel"), "system\n", "matching regex"),
    ((*LONG, "calls", 0, "kernel"), "count", "calls[0] (count): 3 arguments, it takes 2"),
    ((*LONG, "calls", 0, "arguments", 0), ["parameter", 2], "there is no parameter 2"),
    ((*LONG, "calls", 0, "arguments", 1), ["constant", 1], "there is no constant 1"),
    ((*LONG, "calls", 0, "arguments", 1), ["constant", -1], "expected `int` >= 0"),
    ((*LONG, "calls", 0, "arguments", 1), ["stack", 0], "invalid enum value 'stack'"),
    ((*LONG, "calls", 0, "arguments", 2), ["parameter", 1], "parameter 1 would be overwritten"),
    ((*LONG, "calls", 0, "arguments", 2), ["arena", 32], "offset 32 is no multiple of 64"),
    ((*LONG, "calls", 1, "arguments", 0), ["arena", 64], "nothing has written float32[20] to offset 64"),
    ((*LONG, "calls", 1, "arguments", 2), ["arena", 64], "it changes arena 64, which overlaps arena 0"),
    ((*LONG, "calls", 3, "arguments", 2), ["arena", 384], "which overlaps arena 384"),
    ((*LONG, "calls", 3, "arguments", 2), ["arena", 256], "calls[4] (put): nothing has written int64[10] to"),
    ((*LONG, "calls", 4, "arguments", 0), ["constant", 0], "constant 0 would be changed"),
    ((*LONG, "calls", 4, "arguments", 0), ["arena", 128], "it changes arena 128, which overlaps arena 128"),
    ((*LONG, "calls", 4, "arguments", 1), ["parameter", 1], "it changes parameter 1, which overlaps parameter 1"),
    ((*LONG, "calls", 4, "arguments", 2), ["arena", 384], "nothing has written int64[10] to offset 384"),
    ((*LONG, "parameters", 0, "shape"), [4, 4], "parameter 0 is float32[4, 4], not float32[20]"),
    ((*LONG, "parameters", 0, "dtype"), "int32", "parameter 0 is int32[4, 5], not float32[20]"),
    ((*LONG, "outputs", 0, "place"), ["arena", 256], "outputs[0]: nothing has written float32[4, 5] to"),
    ((*LONG, "arena_bytes"), 448, "functions.part_0_b1_s4: arena_bytes: 448, its calls take 512"),
    ((*LONG, "arena_bytes"), 2**52, "its calls take 512"),
]  # fmt: skip
PUT = ("launches", "put")
BAD_LAUNCHES: list[tuple[tuple[Any, ...], Json, str]] = [
    (("launches",), None, "expected `object`"),
    (("launches",), {}, "launches: 'add' is not there and among the kernels"),
    (("launches", "sub"), [], "launches: 'sub' is not there and among the kernels"),
    (("launches", "no name"), [], "matching regex"),
    (PUT, [], "launches.put: there is none"),
    ((*PUT, 0, "function"), "a b", "matching regex"),
    ((*PUT, 0, "grid"), [1, 1], "`array` of length 3"),
    ((*PUT, 0, "grid"), [2**31, 1, 1], "expected `int` <= 2147483647"),
    ((*PUT, 0, "grid"), [1, 2**16, 1], "expected `int` <= 65535"),
    ((*PUT, 0, "grid"), [1, 1, 0], "expected `int` >= 1"),
    ((*PUT, 0, "block"), [1025, 1, 1], "expected `int` <= 1024"),
    ((*PUT, 0, "block"), [1, 1, 65], "expected `int` <= 64"),
    ((*PUT, 0, "block"), [32, 33, 1], "launches.put[0].block: 1056 threads, a block has 1024 at most"),
    ((*PUT, 0, "shared_bytes"), 2**31, "expected `int` <= 2147483647"),
    ((*PUT, 1, "arguments"), [0, 3], "launches.put[1].arguments: the kernel has 3 parameters"),
    ((*PUT, 1, "arguments"), [-1], "expected `int` >= 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "key", "value", "message"),
    [*((raw, *bad) for bad in BAD), *((raw_for_gpu, *bad) for bad in BAD_LAUNCHES)],
    ids=[f"{message}, {'.'.join(map(str, key))}" for key, _, message in (*BAD, *BAD_LAUNCHES)],
)
def test_plans_that_are_not_right(
    raw: Callable[[], Json], key: tuple[Any, ...], value: Json, message: str
) -> None:
    data = raw()
    place = data
    for step in key[:-1]:
        place = place[step]
    place[key[-1]] = value
    with pytest.raises(BundleError) as caught:
        parse_kernel_plan(data, "kernels.json")
    assert message in caught.value.message
    assert "compile again" in (caught.value.hint or "")


def with_launches() -> Json:
    """The plan for a GPU: one launch a kernel, but two of `halve`."""
    plan = sample()
    launches = {
        name: tuple(
            KernelLaunch(f"{name}_kernel", (2, 1, 1), (32, 1, 1), 0, tuple(range(len(kernel.parameters))))
            for _ in range(2 if name == "halve" else 1)
        )
        for name, kernel in plan.kernels.items()
    }
    return json.loads(kernel_plan_text(plan.with_launches(launches)))


def test_launches_are_written_and_read_again() -> None:
    plan = parse_kernel_plan(with_launches(), "kernels.json")
    assert json.loads(kernel_plan_text(plan)) == with_launches()
    assert parse_kernel_plan(raw(), "kernels.json").launches is UNSET


def test_the_digest_is_of_kernels_and_launches() -> None:
    plan = parse_kernel_plan(with_launches(), "kernels.json")
    other = with_launches()
    other["launches"]["add"][0]["grid"] = [3, 1, 1]
    changed = parse_kernel_plan(other, "kernels.json")
    assert changed.kernels == plan.kernels
    digests = {kernels_digest(found.kernels, found.launches) for found in (plan, changed)}
    assert len(digests | {kernels_digest(plan.kernels)}) == 3


ADD = ("launches", "add", 0)
BAD_LAUNCHES_OF_TWO: list[tuple[tuple[Any, ...], Json, str]] = [
    (("launches",), {}, "launches: 'add' is not there and among the kernels"),
    (("launches", "sub"), [], "launches: 'sub' is not there and among the kernels"),
    (("launches", "add"), [], "launches.add: there is none"),
    ((*ADD, "block"), [1024, 2, 1], "launches.add[0].block: 2048 threads, a block has 1024 at most"),
    (("launches", "halve", 1, "block"), [32, 32, 2], "launches.halve[1].block: 2048 threads"),
    ((*ADD, "block"), [1, 1, 65], "expected `int` <= 64"),
    ((*ADD, "block"), [32, 1], "expected `array` of length 3"),
    ((*ADD, "grid"), [0, 1, 1], "expected `int` >= 1"),
    ((*ADD, "grid"), [1, 65536, 1], "expected `int` <"),
    ((*ADD, "arguments"), [0, 1, 3], "launches.add[0].arguments: the kernel has 3 parameters"),
    ((*ADD, "arguments"), [0, -1], "expected `int` >= 0"),
    ((*ADD, "shared_bytes"), -1, "expected `int` >= 0"),
    ((*ADD, "function"), "two words", "matching regex"),
    ((*ADD, "stream"), 0, "unknown field `stream`"),
]


@pytest.mark.parametrize(("key", "value", "message"), BAD_LAUNCHES_OF_TWO)
def test_launches_that_are_not_right(key: tuple[Any, ...], value: Json, message: str) -> None:
    data = with_launches()
    *path, last = key
    place = data
    for part in path:
        place = place[part]
    place[last] = value
    with pytest.raises(BundleError) as caught:
        parse_kernel_plan(data, "kernels.json")
    assert message in caught.value.message


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("is_of_gpu", [False, True])
def test_no_plan_that_is_read_leaves_its_memory(is_of_gpu: bool) -> None:
    """Every mutation of a plan is refused, or its calls stay within the arena and what they were given.

    The code of a GPU has the digest of kernels and launches: with others it is not loaded.
    """
    write = with_launches if is_of_gpu else raw
    right = _digest(parse_kernel_plan(write(), "kernels.json"))
    rng, accepted = random.Random(13), 0
    for _ in range(MUTATIONS):
        data = write()
        for _ in range(rng.randint(1, 3)):
            mutate(data, rng)
        try:
            plan = parse_kernel_plan(data, "kernels.json")
        except BundleError:
            continue
        if is_of_gpu and _digest(plan) != right:
            continue
        accepted += 1
        for function in plan.functions.values():
            check_memory(plan, function)
    assert 100 < accepted < MUTATIONS / 2, "some mutations are harmless, most are not"


def _digest(plan: KernelPlan) -> bytes:
    return kernels_digest(plan.kernels, plan.launches)


def check_memory(plan: KernelPlan, function: KernelFunction) -> None:
    """Follow a function byte by byte, which shares no code with the rules."""
    sizes = {
        "parameter": [tensor.bytes for tensor in function.parameters],
        "constant": [len(constant.data) for constant in plan.constants],
    }
    arena = [""] * function.arena_bytes
    for number, made in enumerate(function.calls):
        for place, parameter in zip(made.arguments, plan.kernels[made.kernel].parameters, strict=True):
            if place.room != "arena":
                assert parameter.access != "write" and sizes[place.room][place.at] == parameter.bytes
                assert parameter.access == "read" or place.room == "parameter"
                continue
            assert place.at % ALIGNMENT == 0 and place.at + parameter.bytes <= len(arena)
            if parameter.access != "write":
                assert len(set(arena[place.at : place.at + parameter.bytes])) == 1 and arena[place.at]
        for index, (place, parameter) in enumerate(
            zip(made.arguments, plan.kernels[made.kernel].parameters, strict=True)
        ):
            assert parameter.access == "read" or made.arguments.count(place) == 1
            if parameter.access == "write":
                arena[place.at : place.at + parameter.bytes] = [f"{number}.{index}"] * parameter.bytes
