"""release/Containerfile, read and not built: its stages, what they copy, and the commands that they start."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatch

import pytest

from partc.extras import requirements
from release.tree import ROOT
from tests.manuals.test_command_lines import refusal
from tests.release.names import NATIVE, PLAIN, SOURCE

TARGETS = {"device", "endpoint", "compiler"}
_INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "RUN", "USER", "WORKDIR"}


@dataclass
class Stage:
    name: str
    base: str
    lines: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [rest for word, rest in self.lines if word == instruction]

    def words(self, instruction: str) -> list[str]:
        """The words of a command in JSON; none where there is no such instruction."""
        return [word for text in self.all(instruction) for word in json.loads(text)]


def read_stages(text: str) -> dict[str, Stage]:
    whole = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    stages: dict[str, Stage] = {}
    stage = Stage("", "")
    for line in filter(None, whole.splitlines()):
        word, _, rest = line.partition(" ")
        assert word in _INSTRUCTIONS, line
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = stages.setdefault(name, Stage(name, base))
            assert not stage.lines, f"two stages are called {name}"
        stage.lines.append((word, rest))
    return stages


STAGES = read_stages((ROOT / "release/Containerfile").read_text(encoding="utf-8"))


def test_targets_are_stages_and_bases_stand_before_them() -> None:
    assert STAGES.keys() >= TARGETS
    before: set[str] = set()
    for name, stage in STAGES.items():
        assert stage.base in before or stage.base.startswith(("python:", "debian:")), stage.base
        before.add(name)


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignored, *kept = (
        line
        for line in (ROOT / "release/Containerfile.dockerignore").read_text().splitlines()
        if line[0] != "#"
    )
    assert ignored == "*"
    for stage in STAGES.values():
        for text in stage.all("COPY"):
            *options, source, _ = text.split()
            if options:
                (other,) = (option.removeprefix("--from=") for option in options)
                assert source in " ".join(STAGES[other].all("RUN"))
                continue
            assert f"!{source}" in kept
            assert (ROOT / source).is_file() or source.startswith("dist/")


def test_wheels_of_a_release_are_those_that_are_copied() -> None:
    (source,) = (text.split()[0] for text in STAGES["wheel"].all("COPY") if text.startswith("dist/"))
    assert fnmatch(f"dist/{NATIVE}", source)
    assert fnmatch(f"dist/{PLAIN}", source)
    assert not fnmatch(f"dist/{SOURCE}", source)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_commands_and_extras_exist(name: str) -> None:
    stage = STAGES[name]
    assert refusal([*stage.words("ENTRYPOINT"), *stage.words("CMD")]) is None
    assert stage.all("USER") == ["10001:10001"], "no container needs root"
    extras = re.findall(r"\.whl\)\[([a-z,]+)\]", " ".join(stage.all("RUN")))
    assert {one for text in extras for one in text.split(",")} <= requirements().keys()
    assert bool(extras) == (name != "device")


def test_what_deploy_asks_of_an_image_is_in_the_endpoint() -> None:
    """Manifests start `partc serve` and, where a device has no native runner, `partc-runner`; the wheel brings both."""
    assert STAGES["endpoint"].words("CMD")[:2] == ["partc", "serve"]
    assert STAGES["endpoint"].all("ENTRYPOINT") == []
    assert '[serve]"' in " ".join(STAGES["endpoint"].all("RUN"))


def test_what_would_be_wrong_is_found() -> None:
    with pytest.raises(AssertionError, match="RUNN"):
        read_stages("FROM a AS b\nRUNN x\n")
    with pytest.raises(AssertionError, match="two stages"):
        read_stages("FROM a AS b\nFROM a AS b\n")
    assert refusal(["partc", "serve", "/build", "--no-such"])
