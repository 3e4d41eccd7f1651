"""Code for a GPU and its plan, loaded into a driver, and the memory that its functions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import UNSET

from partc.errors import BundleError
from partc.format.kernel_plan import KernelFunction, KernelPlan, Place, kernels_digest
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.runtime.engines.gpu.contract import Buffer, Code, Content, Driver, DriverError, Start
from partc.runtime.engines.plan_library import plan_file, plan_within, verified_code


class GpuLibrary:
    """The functions of one file; one step runs at a time."""

    def __init__(self, driver: Driver, code: Code, plan: KernelPlan, plan_path: Path) -> None:
        """Make room on the device for everything that functions make, and for the constants of the plan."""
        self.plan = plan
        self.plan_path = plan_path
        self._driver = driver
        self._code = code
        self._arena = driver.allocate(max(1, plan.arena_bytes))
        self._constants = []
        for constant in plan.constants:
            buffer = driver.allocate(len(constant.data))
            driver.write(buffer, constant.array)
            self._constants.append(buffer)

    def prepare(self, function: KernelFunction, parameters: Sequence[Buffer]) -> Callable[[], None]:
        """The start of a function: `parameters` are its inputs, states and weights, which stay where they are."""
        return self._driver.prepare(self._code, self._starts(function, parameters))

    def place(self, place: Place, size: int, parameters: Sequence[Buffer]) -> Buffer:
        """The place of a tensor of so many bytes."""
        match place.room:
            case "arena":
                return self._driver.part(self._arena, place.at, size)
            case "parameter":
                return parameters[place.at]
            case "constant":
                return self._constants[place.at]

    def _starts(self, function: KernelFunction, parameters: Sequence[Buffer]) -> list[Start]:
        assert self.plan.launches is not UNSET
        starts: list[Start] = []
        for call in function.calls:
            kinds = self.plan.kernels[call.kernel].parameters
            given = [
                self.place(place, kind.bytes, parameters)
                for place, kind in zip(call.arguments, kinds, strict=True)
            ]
            for launch in self.plan.launches[call.kernel]:
                starts.append((launch, [given[number] for number in launch.arguments]))
        return starts


def open_gpu_library(role: Role, folder: Path, name: str, driver: Driver) -> GpuLibrary:
    """Load the file `name` of a bundle and its plan.

    Raises:
        BundleError: code or plan is not what the build describes, or for another device; or there is no memory left.
    """
    content, where = verified_code(role, folder, name), folder / plan_file(name)
    plan = plan_within(role, where)
    if plan.launches is UNSET:
        raise BundleError("it has no launches, which a GPU needs", where=str(where), hint=RECOMPILE)
    try:
        code = driver.load(Content(content, kernels_digest(plan.kernels, plan.launches)))
        return GpuLibrary(driver, code, plan, where)
    except DriverError as error:
        message = f"{driver.name} does not take it: {error}"
        raise BundleError(message, where=str(folder / name), hint=RECOMPILE) from None
