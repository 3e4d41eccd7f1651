"""The time of a prompt by its length, on one device: in the steps that there is code for, and filled up to one of them.

    python -m tests.bench.prompt_lengths --folder /tmp/lengths [--model 110M] [--most 300] [--json FILE] [--plot FILE]

A Llama with random weights (`tests/bench/llamas.py`) is compiled to int4 for target tvm and one thread. Its runner's
engine computes prompts in this process: `parts` in the steps that a runner takes them in, `filled` in one step of the
next size. `share` lies on the line between the nearest sizes; the aim is that no prompt takes more than `BOUND` times
of it. Times are the least processor time of several tries in turns, which other work of the machine changes little.
Lengths are those next to all sizes and some between; `--every 1` measures each. Prints a table; exit code 1 where a
prompt is over the aim.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from tests.bench import llamas
from tests.bench.random_models import MODELS
from tests.bench.speed.machine import processor_name
from tests.bench.uncut import Uncut

BOUND = 1.3
SEQUENCE = 640


@dataclass(frozen=True)
class Length:
    """A prompt of one length; milliseconds."""

    tokens: int
    steps: tuple[int, ...]
    parts_ms: float
    filled_ms: float
    share_ms: float

    @property
    def over(self) -> float:
        """Times of its share."""
        return self.parts_ms / self.share_ms


def build(folder: Path, model: str) -> Path:
    """The bundle, made where it is missing."""
    place, bundle = folder / model, folder / model / "bundle"
    if not (place / "checkpoint" / llamas.WEIGHTS).exists():
        place.mkdir(parents=True, exist_ok=True)
        MODELS[model].make_checkpoint(place)
    if bundle.exists():
        return bundle
    (place / "model.yaml").write_text(
        "model: ./checkpoint\ntask: text-generation\ndtype: float32\nquantize: int4\nmax_requests: 1\n"
        f"max_sequence: {SEQUENCE}\nworkload: {{prompt: 64, generate: 128}}\n"
    )
    (place / "devices.yaml").write_text(
        "source: a\ndevices:\n  a: {target: tvm, arch: host, threads: 1, flops: 60 GFLOP/s, "
        "memory_bandwidth: 12 GB/s, memory: 32 GB}\n"
    )
    files = [str(place / "model.yaml"), "--target", str(place / "devices.yaml"), "-o", str(bundle)]
    subprocess.run([sys.executable, "-m", "partc.cli", "compile", *files], check=True)
    return bundle


def lengths_of(sizes: Sequence[int], most: int, every: int) -> list[int]:
    """The sizes, their neighbours, and lengths between them."""
    near = {size + by for size in sizes for by in (-1, 0, 1)}
    between = {a + (b - a) * part // 4 for a, b in pairwise(sizes) for part in (1, 2, 3)}
    return sorted(n for n in {*near, *between, *range(every, most + 1, every), most} if 1 <= n <= most)


def measured(engine: Uncut, lengths: Sequence[int], sizes: Sequence[int], tries: int) -> list[Length]:
    """The times of all lengths and sizes, in turns."""
    steps = {tokens: engine.parts(tokens) for tokens in lengths}
    asked = {(rows,) for rows in sizes} | {tuple(parts) for parts in steps.values()}
    least = dict.fromkeys(sorted(asked), float("inf"))
    for _ in range(tries):
        for each, before in least.items():
            least[each] = min(before, _prompt_ms(engine, each))
    found = []
    for tokens in lengths:
        at = bisect_left(sizes, tokens)
        above, below = sizes[at], sizes[at if sizes[at] == tokens else at - 1]
        part = (tokens - below) / (above - below) if above > below else 0.0
        filled, smaller = least[(above,)], least[(below,)]
        share = smaller + part * (filled - smaller)
        found.append(Length(tokens, tuple(steps[tokens]), least[tuple(steps[tokens])], filled, share))
    return found


def _prompt_ms(engine: Uncut, steps: Sequence[int]) -> float:
    """Processor time of a prompt in these steps."""
    began, position = time.process_time(), 0
    for rows in steps:
        engine.step(rows, position)
        position += rows
    return 1000 * (time.process_time() - began)


def _row(found: Length) -> str:
    steps = " + ".join(map(str, found.steps))
    return (
        f"{found.tokens:5} {found.parts_ms:9.1f} ms  filled {found.filled_ms:9.1f} ms  share {found.share_ms:9.1f} ms  "
        f"x {found.over:.2f}  {steps}"
    )


def draw(about: Mapping[str, object], lengths: Sequence[Length], out: Path) -> None:
    """Milliseconds by length, beside a step of the next size and the bound. The same file for the same figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "partc", "svg.fonttype": "none", "font.size": 9})
    drawing = Figure(figsize=(7.2, 4.2), layout="constrained")
    panel = drawing.subplots()
    tokens = [one.tokens for one in lengths]
    bound = [BOUND * one.share_ms for one in lengths]
    panel.fill_between(tokens, [one.share_ms for one in lengths], bound, color="#56b4e9", alpha=0.3, linewidth=0,
                       label=f"share between the sizes, up to {BOUND} times of it")  # fmt: skip
    panel.step(tokens, [one.filled_ms for one in lengths], where="pre", color="#d55e00", linewidth=1,
               label="in one step, filled up")  # fmt: skip
    panel.plot(
        tokens,
        [one.parts_ms for one in lengths],
        color="#009e73",
        marker=".",
        label="in the sizes that exist",
    )
    panel.set(xlabel="tokens of the prompt", ylabel="ms of one core to the first token", xlim=(0, None), ylim=(0, None),
              title=f"{about['model']}, int4, one thread, {about['processor']}")  # fmt: skip
    panel.legend(frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None})


def main() -> int:
    """Measure, print and draw; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", choices=sorted(llamas.SHAPES), default="110M")
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    engine = Uncut(build(options.folder, options.model), "a")
    sizes = [rows for rows, _ in engine.model.prompt_steps]
    wanted = lengths_of(sizes, options.most, options.every)
    found = measured(engine, wanted, sizes[: bisect_left(sizes, options.most) + 1], options.tries)
    about = {"model": options.model, "processor": processor_name(), "tries": options.tries}
    print(*map(_row, found), sep="\n")
    if options.json:
        options.json.write_text(
            json.dumps({**about, "lengths": [asdict(one) for one in found]}, indent=1) + "\n"
        )
    if options.plot:
        draw(about, found, options.plot)
    over = [one for one in found if one.over > BOUND]
    print(f"{len(over)} of {len(found)} lengths take more than {BOUND} times their share")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
