"""fleet.yaml, and what actors are told of it."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import pytest

from partc.cluster.door import settings_of
from partc.cluster.posts import posts_of
from partc.config.fleet import DoorPlace, load_fleet
from partc.errors import ConfigError
from tests.runtime.bundles import language_model


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Devices a, b and c, which have no addresses."""
    return language_model("null").write(tmp_path_factory.mktemp("fleet") / "build")


ADDRESSES = (
    "{a: {address: 127.0.0.1:1}, b: {address: 127.0.0.1:2, resource: pi}, "
    "c: {address: 127.0.0.1:3, keeper: false}}"
)
TWICE = f"{{x: {{build: build, devices: {ADDRESSES}}}, y: {{build: build, devices: {ADDRESSES}}}}}"


def test_paths_are_relative_to_the_file(build: Path) -> None:
    path = build.parent / "fleet.yaml"
    path.write_text(f"rings:\n  kitchen: {{build: build, devices: {ADDRESSES}}}\n")
    fleet = load_fleet(path)
    assert fleet.door == DoorPlace()
    (posts,) = posts_of(fleet).values()
    assert [(post.name, post.resource, post.folder) for post in posts.keepers] == [
        ("keeper/kitchen/a", "device_a", str(build / "devices" / "a")),
        ("keeper/kitchen/b", "pi", str(build / "devices" / "b")),
    ]
    assert posts.keepers[0].peers == {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": "127.0.0.1:3"}
    assert (posts.door.build, posts.door.source) == (str(build), "127.0.0.1:1")


def test_the_door_has_the_options_of_an_endpoint() -> None:
    """Those of `partc serve`, but for what concerns its one ring, or the terminal."""
    from partc.cli.serve import serve_command

    others = {"builds", "addresses", "runner", "patience", "linger", "insecure", "max_body", "allow_moves"}
    terminal = {"log_level", "log_format", "as_json"}
    options = {str(option.name) for option in serve_command.params} - others - terminal
    keys = {"cors_origins" if name == "origins" else name for name in options}
    assert keys == {field.name.removesuffix("_s") for field in fields(DoorPlace)}


def test_what_the_file_says_of_the_door(build: Path) -> None:
    path = build.parent / "door.yaml"
    door = (
        "{cors_origins: [https://chat.example], ignore_unknown_fields: true, drafts: false, temperature: 0, "
    )
    door += "chat_template: t}"
    path.write_text(f"rings: {{one: {{build: build, devices: {ADDRESSES}}}}}\ndoor: {door}\n")
    found = settings_of(load_fleet(path).door)
    assert found.origins == {"https://chat.example"}
    assert not found.drafts
    assert (found.ignores_unknown, found.temperature, found.template) == (True, 0, build.parent / "t")


def test_what_ray_carries_has_no_key(build: Path) -> None:
    path = build.parent / "keys.yaml"
    (build.parent / "keys.txt").write_text("secret")
    path.write_text(
        f"rings: {{one: {{build: build, devices: {ADDRESSES}}}}}\ndoor: {{api_key_file: keys.txt}}\n"
    )
    fleet = load_fleet(path)
    (posts,) = posts_of(fleet).values()
    carried = pickle.dumps((posts, fleet.door))
    secrets = [
        file.read_bytes().strip() for file in build.rglob("*") if "keys" in file.parts and file.is_file()
    ]
    assert secrets
    assert not any(secret in carried for secret in [*secrets, b"secret"])


@pytest.mark.parametrize(
    ("text", "message", "where"),
    [
        ("door: {}", "`rings` is missing", "fleet.yaml"),
        ("rings: {}", "there is no ring", "rings"),
        ("rings: {x: {}}", "`build` is missing", "rings.x"),
        ("rings: {x: {build: b, bild: c}}", "unknown key `bild`", "rings.x.bild"),
        ("rings: {x: {build: b, insecure: 1}}", "expected true or false", "rings.x.insecure"),
        (
            "rings: {x: {build: b, devices: {a: {address: here}}}}",
            "'here' has no port",
            "rings.x.devices.a.address",
        ),
        ("rings: {x: {build: b}}\ndoor: {host: 0.0.0.0}", "lets others in", "door.host"),
        ("rings: {x: {build: b}}\ndoor: {temperature: 3}", "3 is no temperature", "door.temperature"),
        (
            "rings: {x: {build: b}}\ndoor: {cors_origins: x}",
            "expected a list of origins",
            "door.cors_origins",
        ),
        ("rings: {x: {build: b}}\ndoor: {port: 70000}", "70000 is no port", "door.port"),
        ("rings: {x: {build: b}}\ndoor: {tls_cert: c}", "`tls_cert` goes with `tls_key`", "door"),
    ],
)
def test_mistakes_are_named(text: str, message: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        load_fleet(path)
    assert error.value.where is not None and where in error.value.where
    assert error.value.hint


@pytest.mark.parametrize(
    ("rings", "message"),
    [
        ("{x: {build: build}}", "nobody says where a is"),
        ("{x: {build: build, devices: {d: {address: 'h:1'}}}}", "the build has no device 'd'"),
        (TWICE, "a and x/a are both"),
    ],
)
def test_rings_that_cannot_be_are_refused(build: Path, rings: str, message: str) -> None:
    path = build.parent / "wrong.yaml"
    path.write_text(f"rings: {rings}\n")
    with pytest.raises(ConfigError, match=message):
        posts_of(load_fleet(path))
