"""Compile here, run where the GPU is: everything about code for GPUs that a GPU has to show, in one report.

    python -m tests.gpu make FOLDER [--cuda-arch sm_90] [--cases llama,gpt2]    # needs partc[compile,tvm] and nvcc
    python -m tests.gpu run FOLDER [--report FILE.md]                             # needs numpy, msgspec and the driver
    python -m tests.gpu resources sm_80 sm_87 [--cases llama,gpt2]                # needs partc[compile,tvm] and nvcc

`make` compiles every case for CUDA and for OpenCL, verifies the second against transformers (`partc verify`), and keeps
the logits of its tokens as those that are expected; in half precision, which few OpenCLs of processors have, those of
kernels for processors. `run` computes the same tokens on the GPU: they have to be equal, and the error of the logits is
shown. Then it takes the times of larger models, whose weights it makes up. `resources` compiles for each architecture
and shows what the kernels take of a multiprocessor: registers, shared memory, and what did not fit.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from tests.gpu.cases import CASES, MEASURED, PROMPTS, TIMED, TOKENS, Case
from tests.gpu.report import Found, Timed, write_report
from tests.gpu.resources import Resources, read_resources, row_of
from tests.gpu.steps import Steps
from tests.gpu.weights import hollow, refill

_EXPECTED = "expected.npz"
_VOCABULARY = 300
LENGTHS = (16, 64, 65, 256, 512)
"""Of prompts whose times are taken."""


def main() -> None:
    """Parse the command line and do it."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.gpu", description=__doc__, formatter_class=plain)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="compile the builds and keep what is expected")
    making.add_argument("folder", type=Path)
    making.add_argument("--cuda-arch", default="sm_87")
    making.add_argument("--cases", default="", help="names, with commas between them; default: all")
    running = commands.add_parser("run", help="compute on the GPU of this machine")
    running.add_argument("folder", type=Path)
    running.add_argument("--report", type=Path, help="a file for the tables; default: standard output")
    running.add_argument(
        "--transformers", action="store_true", help="take its times in float16, too (needs torch)"
    )
    taking = commands.add_parser("resources", help="registers and memory of the kernels, by architecture")
    taking.add_argument("architectures", nargs="+")
    taking.add_argument("--cases", default=",".join(MEASURED), help="names, with commas between them")
    options = parser.parse_args()
    if options.command == "resources":
        for architecture in options.architectures:
            print(row_of(architecture, resources(architecture, options.cases.split(","))), flush=True)
    elif options.command == "make":
        chosen = options.cases.split(",") if options.cases else [case.name for case in (*CASES, *TIMED)]
        for case in (*CASES, *TIMED):
            if case.name in chosen:
                make(case, options.folder / case.name, options.cuda_arch)
    else:
        sys.exit(run(options.folder, options.report))


def make(case: Case, folder: Path, cuda_arch: str) -> None:
    """The build of a case, and beside it what is expected of it."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        model, build = Path(scratch) / "model.yaml", Path(scratch) / "reference"
        model.write_text(yaml.safe_dump(case.model))
        _compile(case, model, folder, "cuda", cuda_arch)
        if case.is_timed:
            hollow(folder)
            return
        _compile(case, model, build, case.reference, cuda_arch)
        if (
            case.dtype == "float32"
        ):  # in half precision the original rounds elsewhere, and near ties change places
            _partc("verify", str(build))
        np.savez_compressed(folder / _EXPECTED, allow_pickle=False, **expected(Steps(build)))
    print(f"{case.name}: made", flush=True)


def _compile(case: Case, model: Path, build: Path, provider: str, cuda_arch: str, **more: object) -> None:
    devices = model.with_name(f"{provider}.yaml")
    options = {"chunks": list(case.chunks), "cuda_arch": cuda_arch, **more}
    device = {
        "arch": "host", "flops": "10 TFLOP/s", "memory_bandwidth": "1000 GB/s", "memory": "16 GB",
        "target": "tvm", "provider": provider, "options": options,
    }  # fmt: skip
    devices.write_text(yaml.safe_dump({"source": "gpu", "devices": {"gpu": device}}))
    _partc("compile", str(model), "--target", str(devices), "-o", str(build))


def resources(architecture: str, names: Sequence[str]) -> list[Resources]:
    """Of every kernel of some cases."""
    with tempfile.TemporaryDirectory() as scratch:
        nvcc, log = Path(scratch) / "nvcc", Path(scratch) / "log"
        nvcc.write_text(f'#!/bin/sh\nexec {shutil.which("nvcc")} -Xptxas -v "$@" 2>>{log}\n')
        nvcc.chmod(0o755)
        for case in (case for case in (*CASES, *TIMED) if case.name in names):
            model = Path(scratch) / "model.yaml"
            model.write_text(yaml.safe_dump(case.model))
            _compile(case, model, Path(scratch) / case.name, "cuda", architecture, nvcc=str(nvcc))
        return read_resources(log.read_text())


def _partc(*words: str) -> None:
    command = [sys.executable, "-m", "partc.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def expected(steps: Steps) -> dict[str, np.ndarray]:
    """Logits [tokens, vocabulary] of every prompt, in float32."""
    found = {}
    for length in PROMPTS:
        logits = [row for _, row, _ in steps.request(prompt(length), TOKENS)]
        found[str(length)] = np.stack(logits)
    return found


def prompt(length: int) -> list[int]:
    """Ids that every model has; the same each time."""
    return [int(number) for number in np.random.default_rng(length).integers(3, _VOCABULARY, length)]


def run(folder: Path, report: Path | None) -> int:
    """Compute all that was made; 1 where a token is wrong."""
    found: list[Found] = []
    timed: list[Timed] = []
    device = ""
    for case in (case for case in (*CASES, *TIMED) if (folder / case.name).is_dir()):
        if case.is_timed:
            refill(folder / case.name)
        steps = Steps(folder / case.name)
        device = getattr(steps.engine, "device_name", "")
        if case.is_timed:
            timed.append(_timed(case, steps))
        else:
            found.append(_found(case, steps, folder))
        print((timed if case.is_timed else found)[-1], flush=True)
    text = write_report(device, found, timed)
    if report:
        report.write_text(text)
    else:
        print(text)
    return 0 if all(one.is_right for one in found) else 1


def _found(case: Case, steps: Steps, folder: Path) -> Found:
    right = np.load(folder / case.name / _EXPECTED)
    same, error = 0, 0.0
    for length in PROMPTS:
        given = right[str(length)]
        for (token, logits, _), wanted in zip(steps.request(prompt(length), TOKENS), given, strict=True):
            same += token == int(np.argmax(wanted))
            error = max(error, float(np.abs(logits - wanted).max() / np.abs(wanted).max()))
    return Found(case.name, same, len(PROMPTS) * TOKENS, error)


def _timed(case: Case, steps: Steps) -> Timed:
    module = steps.role.submodules[steps.name]
    weights = sum((steps.folder / file).stat().st_size for file in module.weights)
    prompts = {length: _prompt_ms(steps, length) for length in LENGTHS}
    decode = [taken for _, _, taken in steps.request(prompt(16), 200)][20:]
    far = [taken for _, _, taken in steps.request(prompt(900), 100)][20:]
    return Timed(case.name, weights, float(np.median(decode)) * 1e3, float(np.median(far)) * 1e3, prompts)


def _prompt_ms(steps: Steps, length: int) -> float:
    times = []
    for _ in range(4):
        times.append(steps.prompt_s(prompt(length)))
    return min(times) * 1e3


if __name__ == "__main__":
    main()
