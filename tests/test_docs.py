"""The manuals beside the code: links lead somewhere, and what a user may write is described."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from partc.cli.main import COMMANDS
from partc.config import demand, devices, fleet, model, profiles, quantize
from partc.format.tasks import TASKS
from partc.pipeline.registry import COMMON_OPTIONS, TARGETS, fusions, target_type
from partc.planner.solve import STRATEGIES

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
EXAMPLES = [
    path for path in sorted((ROOT / "examples").rglob("README.md")) if "node_modules" not in path.parts
]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _anchors(path: Path) -> set[str]:
    """The anchors that a renderer makes of the titles of a file."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCS, *EXAMPLES])
def test_links_lead_to_a_file_and_a_title(path: Path) -> None:
    for link in _LINK.findall(_FENCED.sub("", path.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), f"{path.name} links to {link}"
        assert not anchor or anchor in _anchors(target), f"{path.name} links to {link}"


def test_the_index_names_every_manual() -> None:
    index = _text("docs/README.md")
    assert [path.name for path in DOCS if path.name != "README.md" and f"({path.name})" not in index] == []


def test_the_readme_is_a_front_page_with_every_command() -> None:
    text = _text("README.md")
    assert 60 <= len(text.splitlines()) <= 110
    assert [command for command in COMMANDS if f"`partc {command} " not in text] == []


def _providers() -> tuple[str, ...]:
    return tuple({name for target in TARGETS for name in target_type(target).providers or ()})


@pytest.mark.parametrize(
    ("manual", "names"),
    [
        ("docs/model-yaml.md", model._KEYS + TASKS + model.DTYPES),
        ("docs/quantisation.md", quantize.PRECISIONS),
        ("docs/fleet.md", demand._TOP_KEYS + demand._KEYS),
        ("docs/fleet.md", fleet._TOP_KEYS + fleet._RING_KEYS + fleet._DEVICE_KEYS + fleet._DOOR_KEYS),
        ("docs/devices-yaml.md", devices._TOP_KEYS + devices._DEVICE_KEYS + _providers()),
        ("docs/devices-yaml.md", tuple(path.stem for path in profiles.FOLDER.glob("*.yaml"))),
        ("docs/devices-yaml.md", tuple(STRATEGIES) + tuple(TARGETS)),
        ("docs/devices-yaml.md", tuple(name for names in fusions().values() for name in names)),
    ],
)
def test_what_may_be_written_is_described(manual: str, names: tuple[str, ...]) -> None:
    """Each name stands in the manual as code, in a line of its own file or in a table."""
    assert _not_described(names, manual) == []


@pytest.mark.parametrize("target", TARGETS)
def test_options_of_a_target_are_described(target: str) -> None:
    """In the manual of devices.yaml, or in one of the target's own."""
    own = [f"docs/{target}.md"] if (ROOT / "docs" / f"{target}.md").exists() else []
    names = [field.name for field in fields(target_type(target)) if field.name not in COMMON_OPTIONS]
    assert _not_described(names, "docs/devices-yaml.md", *own) == []


def _not_described(names: Iterable[str], *manuals: str) -> list[str]:
    text = "\n".join(map(_text, manuals))
    return [name for name in names if not re.search(rf"(^|[`\s{{]){re.escape(name)}[`:]", text, re.MULTILINE)]


@pytest.mark.parametrize(
    "name", ["README.md", "docs/model-yaml.md", "docs/devices-yaml.md", "docs/quantisation.md"]
)
def test_examples_in_yaml_are_yaml(name: str) -> None:
    for language, block in _FENCED.findall(_text(name)):
        for text in re.findall(r"<<'END'\n(.*?)^END$", block, re.MULTILINE | re.DOTALL):
            yaml.safe_load(text)
        if language == "yaml" and name != "docs/quantisation.md":
            yaml.safe_load(block)
