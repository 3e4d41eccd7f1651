"""Checks that runs say something about a model and its devices: the build that ran must be one of these."""

from __future__ import annotations

from partc.config.devices import DevicesConfig
from partc.errors import UserError
from partc.ir.graph import Module
from partc.ir.workload import workload
from partc.planner.model.edges import edges_of
from partc.runs.history import History


def check_same_model(module: Module, history: History) -> None:
    """Refuse the runs of another model: its sub-modules exchange other values, or in other sizes.

    Raises:
        UserError: names the build.
    """
    steps, phases = workload(module.info), history.case.problem.steps
    now = {step.name: set(edges_of(module, step)) for step in steps}
    if now != {phase.name: set(phase.edges) for phase in phases}:
        folder = history.build.folder
        raise UserError(
            "the runs are of another model, workload or cut rule",
            where=str(folder),
            hint=f"compile the model as it is now and run it: partc compile MODEL --target DEVICES -o {folder}",
        )


def check_one_device_a_stage(history: History) -> None:
    """Refuse the runs of devices that share stages: a share of a sub-module does not tell the time of all of it.

    Raises:
        UserError: names the build.
    """
    if history.case.phases:
        raise UserError(
            "its devices share stages: the time of a share does not tell the time of a whole sub-module",
            where=str(history.build.folder),
            hint="learn from runs of a build with one device a stage: compile with --strategy optimal, and run that",
        )


def check_same_devices(devices: DevicesConfig, history: History) -> None:
    """Refuse the runs of other devices than those of devices.yaml.

    Raises:
        UserError: names the device and what is not the same.
    """
    _check("source", history.case.problem.source, devices.source, "source")
    for name, role in history.build.roles.items():
        device = devices.devices.get(name)
        if device is None:
            _check("device", name, ", ".join(devices.devices), "devices")
            continue
        where = f"devices.{name}"
        _check("target", role.target, device.target, f"{where}.target")
        _check("threads", role.engine.threads, device.threads, f"{where}.threads")
        if role.engine.kind != "null":  # which has none
            _check("provider", role.engine.provider, device.provider, f"{where}.provider")


def _check(key: str, then: object, now: object, where: str) -> None:
    if then != now:
        raise UserError(
            f"the runs are of {key} {then}, devices.yaml has {now}",
            where=where,
            hint="give the devices.yaml that the build was compiled for, or compile and run again",
        )
