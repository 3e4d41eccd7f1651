"""The JSON form of blocks, the parts of sub-modules that several devices may share.

```
"block":  {"share": "heads", "units": 16, "memory_bytes": 8e6, "efficiency": 0.8}
"tiling": {"rows": 284, "activation_bytes": 1163264, "enter": 0.5, "leave": 0.2, "connect": 0.02, "keys_bytes": 0}
```

A sub-module with a `block` has a `tiling` wherever it has a `time_s`: in itself, or in every phase. `"by_rows": false`
says that no tiles of rows can be cut.
"""

from __future__ import annotations

from typing import Final, cast, get_args

from partc.config.section import Section
from partc.planner.model.problem import Block, BlockUnits, Tiling

UNITS: Final = get_args(BlockUnits)
_PARTS = ("enter", "leave", "connect")
_MOVED = ("keys_bytes", "queries_bytes", "sum_bytes")


def read_block(part: Section) -> Block | None:
    """The block of a sub-module.

    Raises:
        ConfigError: a number that cannot be.
    """
    if "block" not in part:
        return None
    section = part.section("block")
    section.allow(("share", "units", "memory_bytes", "efficiency"))
    efficiency = section.number("efficiency", 1.0, positive=True)
    if efficiency > 1:
        raise section.error(
            f"a part of a block is no faster than the whole: found {efficiency}", "efficiency"
        )
    section.require("units", '"units": 16')
    memory = section.number("memory_bytes")
    if memory > part.number("memory_bytes", 0):
        raise section.error("the sub-module has less memory than its block", "memory_bytes")
    share = cast("BlockUnits", section.choice("share", UNITS))
    return Block(share, section.whole("units", 1), memory, efficiency)


def read_tiling(part: Section, *, needed: bool) -> Tiling | None:
    """The tiling that stands beside a `time_s`; `needed`: the sub-module has a block.

    Raises:
        ConfigError: it is missing, has no block, or a number cannot be.
    """
    if not needed:
        if "tiling" in part:
            raise part.error("there is no block that this belongs to", "tiling")
        return None
    part.require("tiling", '"tiling": {"rows": 1, "activation_bytes": 4096}')
    section = part.section("tiling")
    section.allow(("rows", "activation_bytes", *_PARTS, *_MOVED, "by_rows"))
    section.require("rows", '"rows": 1')
    enter, leave, connect = (section.number(key, 0) for key in _PARTS)
    if enter + leave + connect > 1:
        raise part.error(f"{', '.join(_PARTS)} together are more than the whole time", "tiling")
    if "by_rows" in section and section.require("by_rows", '"by_rows": false') is not False:
        raise section.error("it is false, or left out", "by_rows")
    keys, queries, sums = (section.number(key, 0) for key in _MOVED)
    return Tiling(
        section.whole("rows", 1),
        section.number("activation_bytes"),
        enter,
        leave,
        connect,
        keys_bytes=keys,
        queries_bytes=queries,
        sum_bytes=sums,
        by_rows="by_rows" not in section,
    )


def block_json(block: Block) -> dict[str, object]:
    """The JSON form of a block; 1 is no efficiency to write."""
    efficiency = {} if block.efficiency == 1 else {"efficiency": block.efficiency}
    return {"share": block.share, "units": block.units, "memory_bytes": block.memory_bytes, **efficiency}


def tiling_json(tiling: Tiling) -> dict[str, object]:
    """The JSON form of a tiling; fractions and bytes that are 0 are left out."""
    values = {key: getattr(tiling, key) for key in (*_PARTS, *_MOVED)}
    present = {key: value for key, value in values.items() if value}
    apart = {} if tiling.by_rows else {"by_rows": False}
    return {"rows": tiling.rows, "activation_bytes": tiling.activation_bytes, **present, **apart}
