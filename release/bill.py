"""The bill of materials of a release, as CycloneDX: what runners contain, and what pip installs beside the wheel."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from partc import __version__
from release.linked import OWN_LICENSE, Library

_PLATFORM, _SOURCE = "partc:platform", "partc:source-archive"
_FOR_DEVELOPMENT = {"bench", "dev", "docs", "kubernetes", "release"}
"""Extras that no program of partc uses."""
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


def bill_of_materials(linked: Iterable[Library], root: Path, seconds: int) -> str:
    """The bill as JSON.

    Libraries of runners are bound to their versions; packages stand with the versions of constraints.txt, since a
    wheel asks for ranges. Those that every install has are required, those of extras optional.

    Args:
        linked: what runners contain.
        root: the folder with pyproject.toml and constraints.txt.
        seconds: its date, since 1970.
    """
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"partc {__version__} {seconds}"))
    own = Component(
        name="partc",
        version=__version__,
        type=ComponentType.APPLICATION,
        licenses=[LicenseExpression(OWN_LICENSE)],
        bom_ref="partc",
        purl=PackageURL("pypi", name="partc", version=__version__),
    )
    bom.metadata.component = own
    bom.metadata.timestamp = datetime.fromtimestamp(seconds, UTC)
    parts = [*map(_library, linked), *_packages(root)]
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(own, parts)
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return f"{text}\n"


def _library(library: Library) -> Component:
    archive = library.archive
    properties = [Property(name=_PLATFORM, value=name) for name in library.platforms]
    if archive is not None:
        properties.append(Property(name=_SOURCE, value=archive.name))
    kind = library.license
    return Component(
        name=library.name,
        version=library.version,
        type=ComponentType.LIBRARY,
        scope=ComponentScope.REQUIRED,
        licenses=[
            DisjunctiveLicense(name=kind.removeprefix("LicenseRef-"))
            if kind.startswith("LicenseRef-")
            else LicenseExpression(kind)
        ],
        bom_ref=f"linked:{library.name}",
        purl=PackageURL("generic", name=library.name, version=library.version),
        hashes=[] if archive is None else [HashType(alg=HashAlgorithm.SHA_256, content=archive.sha256)],
        properties=properties,
    )


def _packages(root: Path) -> Iterator[Component]:
    """Direct requirements of the wheel, base first."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = _pins((root / "constraints.txt").read_text(encoding="utf-8"))
    extras: dict[str, Sequence[str]] = project["optional-dependencies"]
    base = {_name(item) for item in project["dependencies"]}
    others = {_name(item) for extra in extras.keys() - _FOR_DEVELOPMENT for item in extras[extra]}
    for name in sorted(base | others):
        yield Component(
            name=name,
            version=pins.get(name),
            type=ComponentType.LIBRARY,
            scope=ComponentScope.REQUIRED if name in base else ComponentScope.OPTIONAL,
            bom_ref=f"package:{name}",
            purl=PackageURL("pypi", name=name, version=pins.get(name)),
        )


def _pins(constraints: str) -> dict[str, str]:
    lines = (line.partition("==") for line in constraints.splitlines() if "==" in line)
    return {_name(name): version.strip() for name, _, version in lines}


def _name(requirement: str) -> str:
    found = _REQUIREMENT.match(requirement)
    assert found is not None, "a requirement begins with a name"
    return re.sub(r"[-_.]+", "-", found[0]).lower()
