from __future__ import annotations

import pytest

from partc.format.build import TensorType
from partc.format.program import parse_program
from partc.format.program_rules import Call, Types, device_problems, ring_problems

RING = {
    "a": "run p0 (x) -> (h)\nsend h to b\nrecv y from b\nemit y",
    "b": "recv h from a\nrun p1 (h) -> (y)\nsend y to a",
}


def ring_faults(**changes: str) -> list[str]:
    programs = {device: parse_program(text) for device, text in {**RING, **changes}.items()}
    return [f"{problem.device} {problem.message}" for problem in ring_problems(programs, "a")]


def test_a_ring_without_fault() -> None:
    assert ring_faults() == []
    assert ring_faults(c="") == [], "a device may be idle"


@pytest.mark.parametrize(
    ("device", "program", "faults"),
    [
        ("b", "recv h from a\nsend y to c", ["b `send y to c`: 'c' is not another device of the ring"]),
        ("b", "recv h from b", ["b `recv h from b`: 'b' is not another device of the ring"]),
        ("b", "recv h from a\nsend y to a\nemit y", ["b `emit y`: only the source emits"]),
        (
            "b",
            "recv h from a",
            [
                "a waits for y from b, which does not send just that, once",
                "a waits for ever: `recv y from b`",
            ],
        ),
        ("b", "send y to a", ["a sends h to b, which does not wait for just that, once"]),
        (
            "b",
            "recv h from a\nrecv h from a\nsend y to a",
            ["b waits for h from a, which does not send just that, once"],
        ),
        (
            "b",
            "recv h from a\nsend y to a\nsend y to a",
            ["a waits for y from b, which does not send just that, once"],
        ),
        ("b", "recv h from a\nsend h, y to a", ["a waits for y from b, which does not send just that, once"]),
    ],
)
def test_broken_rules_of_a_ring(device: str, program: str, faults: list[str]) -> None:
    assert ring_faults(**{device: program})[: len(faults)] == faults


def test_devices_that_wait_for_each_other() -> None:
    assert ring_faults(a="recv y from b\nsend h to b", b="recv h from a\nsend y to a") == [
        "a waits for ever: `recv y from b`",
        "b waits for ever: `recv h from a`",
    ]


def test_a_value_that_comes_twice() -> None:
    two = {
        "a": "send h to c",
        "b": "send h to c",
        "c": "recv h from a\nrecv h from b",
    }
    assert ring_faults(**two) == ["c is sent 'h' 2 times"]


def device_faults(text: str) -> list[str]:
    calls = {name: Call(("x",), ("y",), name == "s") for name in ("p", "s")}
    hidden = TensorType("float32", ("batch", 4))
    types = {"x": hidden, "y": hidden, "z": hidden, "half": TensorType("float16", ("batch", 4))}
    types |= {"t": TensorType("int64", ("batch",)), "wide": TensorType("float32", ("batch", 8))}
    types |= {
        f"{name}.{part}": TensorType("float32", (size, 4))
        for name in ("x", "y")
        for part, size in enumerate(("batch*1//2", "batch - batch*1//2"))
    }
    known = Types(types, {"batch": 3})
    return list(device_problems(parse_program(text), {"x", "half", "wide"}, calls, known))


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("run p (x) -> (y)\nsample y -> t\nemit t", []),
        ("emit y", ["`emit y`: 'y' is neither given, made nor received before"]),
        ("recv q from b", ["`recv q from b`: the type of 'q' is not among values"]),
        ("run p (x) -> (y)\nadd x, y -> z", []),
        ("add x, y -> z", ["`add x, y -> z`: 'y' is neither given, made nor received before"]),
        ("add x, wide -> z", ["`add x, wide -> z`: only values of float32 and of one shape are added"]),
        ("add half -> half", ["`add half -> half`: only values of float32 and of one shape are added"]),
        ("run q (x) -> (y)", ["`run q (x) -> (y)`: 'q' is not a sub-module of this device"]),
        ("run p () -> (y)", ["`run p () -> (y)`: the sub-module has other inputs or outputs"]),
        ("run p (x) -> (t)", ["`run p (x) -> (t)`: the sub-module takes or makes values of other types"]),
        (
            "run p (wide) -> (y)",
            ["`run p (wide) -> (y)`: the sub-module takes or makes values of other types"],
        ),
        (
            "cut x -> x.0, x.1 along 0\nrun p (x.0) -> (y.0)\nrun p (x.1) -> (y.1)\njoin y.0, y.1 -> y along 0",
            [],
        ),
        (
            "cut x -> x.0, x.1 along 0\nrun p (x.0) -> (y.1)",
            ["`run p (x.0) -> (y.1)`: the sub-module takes or makes values of other types"],
        ),
        (
            "cut x -> x.0, x.1 along 0\nrun s (x.0) -> (y.0)",
            ["`run s (x.0) -> (y.0)`: the sub-module has other inputs or outputs"],
        ),
        ("cut x -> x.0, x.1 along 1", ["`cut x -> x.0, x.1 along 1`: the parts are not those of the whole"]),
        ("cut x -> x.1, x.0 along 0", ["`cut x -> x.1, x.0 along 0`: the parts are not those of the whole"]),
        ("cut x -> x.0, x.1 along 2", ["`cut x -> x.0, x.1 along 2`: the parts are not those of the whole"]),
        ("join x -> half along 0", ["`join x -> half along 0`: the parts are not those of the whole"]),
    ],
)
def test_broken_rules_of_a_device(text: str, faults: list[str]) -> None:
    assert device_faults(text) == faults
