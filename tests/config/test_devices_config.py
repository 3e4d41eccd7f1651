from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from partc.api.checks import check_targets
from partc.config.devices import DevicesConfig, Link, load_devices
from partc.config.profiles import find_profile, profile_names
from partc.config.yamlfile import load_yaml
from partc.errors import ConfigError
from partc.extras import install_command
from partc.format.readings import Limits
from partc.pipeline.registry import load_target

GOOD = """\
source: phone
memory_fraction: 0.5
devices:
  phone: {target: ort, profile: pixel_7_pro}
  board:
    {target: "null", profile: jetson_orin_nx, memory: 6 GiB, overhead: 300 MB, call_overhead: 20 us,
     threads: 2}
  old:
    target: ort
    arch: aarch64
    flops: 12 GFLOP/s
    memory_bandwidth: 9 GB/s
    memory: 3 GiB
    address: 192.0.2.7:5555
links:
  default: {bandwidth: 100 Mbit/s, latency: 2 ms}
  old->phone: {bandwidth: 20 Mbit/s}
  phone-old: {bandwidth: 300 Mbit/s, latency: 1 ms}
  board->old: none
"""


def load(folder: Path, text: str) -> DevicesConfig:
    path = folder / "devices.yaml"
    path.write_text(text)
    return load_devices(path)


def test_devices(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert list(config.devices) == ["phone", "board", "old"] and config.objective == "latency"
    board, old = config.devices["board"], config.devices["old"]
    assert board.flops_per_s == 1.88e12 and board.memory_bytes == 6 * 2**30 and board.provider == "cuda"
    assert board.overhead_bytes == 300_000_000 and board.call_overhead_s == pytest.approx(2e-5)
    assert board.threads == 2
    assert (old.address, old.arch, old.profile, old.provider) == ("192.0.2.7:5555", "aarch64", None, "cpu")
    assert config.usable_memory("old") == 3 * 2**29


def test_surviving(tmp_path: Path) -> None:
    plain = load(tmp_path, GOOD)
    assert (plain.survive, plain.mirror) == ("none", "auto")
    assert (plain.devices["old"].storage_bytes, plain.devices["old"].limits) == (None, None)
    more = "storage: 8 GB, storage_bandwidth: 400 MB/s, limits: {battery: 30 %, temperature: 80 C, memory: 300 MB}"
    text = GOOD.replace("threads: 2", f"threads: 2, {more}") + "overlap: 3\n"
    config = load(tmp_path, f"survive: one\nmirror: off\n{text}")
    board = config.devices["board"]
    assert (config.survive, config.mirror, config.overlap) == ("one", "off", 3)
    with pytest.raises(ConfigError, match="`mirror: on` needs a loss to mirror for"):
        load(tmp_path, f"mirror: on\n{GOOD}")
    assert load(tmp_path, f"survive: one\nmirror: on\n{GOOD}").mirror == "on"
    with pytest.raises(ConfigError, match="4 further borders a device are too many"):
        load(tmp_path, GOOD + "overlap: 4\n")
    assert (board.storage_bytes, board.storage_bandwidth_bytes_per_s) == (8 * 10**9, 4e8)
    assert board.limits == Limits(battery=0.3, temperature_c=80, memory_bytes=300_000_000)


@pytest.mark.parametrize(
    ("limits", "message", "place"),
    [
        ("{battery: 130 %}", "'130 %' is more than all of it", "limits.battery"),
        ("{battery: 0.3}", "'0.3' has no unit", "limits.battery"),
        ("{temperature: 80 F}", "'F' is not a unit of a temperature", "limits.temperature"),
        ("{heat: 80 C}", "unknown key `heat`", "limits.heat"),
        ("{}", "`limits` is empty", "devices.phone.limits"),
        ("hot", "expected a mapping of keys to values", "devices.phone.limits"),
    ],
)
def test_limits_that_are_refused(tmp_path: Path, limits: str, message: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GOOD.replace("profile: pixel_7_pro", f"profile: pixel_7_pro, limits: {limits}"))
    assert message in caught.value.message
    assert place in (caught.value.where or "")


def test_returns(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).returns == "auto"
    for given, returns in (("auto", "auto"), ("any", "any"), ("0", 0), ("3", 3)):
        assert load(tmp_path, f"returns: {given}\n{GOOD}").returns == returns
    for wrong in ("-1", "yes", "often", "1.5"):
        with pytest.raises(ConfigError, match="expected `auto`, `any` or a whole number of at least 0"):
            load(tmp_path, f"returns: {wrong}\n{GOOD}")


def test_options_of_a_target(tmp_path: Path) -> None:
    text = f"{TVM}arch: aarch64, threads: 3, options: {{features: [dotprod], chunks: [8, 32], cuda_arch: sm_72}}}}}}\n"
    device = load(tmp_path, text).devices["a"]
    assert device.options == {"features": ("dotprod",), "chunks": (8, 32), "cuda_arch": "sm_72"}
    target = load_target(device.target, device.target_options)
    expected = {"provider": "cuda", "threads": 3, "arch": "aarch64", **device.options}
    assert {key: getattr(target, key) for key in expected} == expected


def test_the_machine_that_compiles_describes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has = frozenset(("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "sse2"))
    for module in ("targets.tvm.machine", "targets.ort.processor"):
        monkeypatch.setattr(f"{module}.processor_features", lambda: has)
    monkeypatch.setattr("targets.tvm.machine.processor_vendor", lambda: "GenuineIntel")
    for module in ("targets.tvm.machine", "partc.config.target"):
        monkeypatch.setattr(f"{module}.architecture", lambda: "x86_64")
    device = load(tmp_path, f"{TVM}arch: host}}}}\n".replace("provider: cuda, ", "")).devices["a"]
    of_gpu = {"cuda_arch": "sm_86"}  # what the profile knows of another part
    features = ("avx2", "avx512", "prefetch")
    assert (device.arch, device.options) == ("x86_64", {"features": features, **of_gpu})
    assert device.chosen == {"arch": "x86_64", "options": {"features": [*features]}}
    own = load(tmp_path, f"{TVM}arch: host, options: {{features: [avx2]}}}}}}\n").devices["a"]
    assert own.options == {"features": ("avx2",), **of_gpu}
    plain = load(tmp_path, f"{TVM}arch: host}}}}\n".replace("target: tvm", "target: ort")).devices["a"]
    assert (plain.arch, plain.options) == ("x86_64", {})


@pytest.mark.parametrize(
    ("device", "target"),
    [
        ("profile: pixel_7_pro", "tvm"),
        ("profile: pixel_7_pro, provider: xnnpack", "ort"),
        ("profile: jetson_orin_nx, arch: aarch64", "ort"),
        ("profile: pixel_7_pro, provider: cpu, options: {features: [dotprod]}", "tvm"),
    ],
)
def test_a_device_that_names_no_target_gets_the_fastest_that_serves_it(
    tmp_path: Path, device: str, target: str
) -> None:
    found = load(tmp_path, f"source: a\ndevices: {{a: {{{device}}}}}\n").devices["a"]
    assert (found.target, found.chosen) == (target, {"target": target})
    named = load(tmp_path, f"source: a\ndevices: {{a: {{target: {target}, {device}}}}}\n").devices["a"]
    assert replace(found, chosen={}) == named


def test_without_tvm_compiling_ends_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never with another target: builds would differ between machines."""
    devices = load(tmp_path, "source: a\ndevices: {a: {profile: pixel_7_pro}}\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check_targets(devices, tools=False)  # as for `partc plan`
    with pytest.raises(ConfigError, match="TVM is not installed") as caught:
        check_targets(devices, tools=True)
    hint = caught.value.hint or ""
    assert install_command("tvm", "link", upgrade=True) in hint and "devices.yaml names no target" in hint


@pytest.mark.parametrize(
    ("device", "hint"),
    [
        ("options: {features: [dotprod]}", "processors of aarch64 have it: write `arch:`"),
        ("options: {features: [VNNI]}", "did you mean 'vnni'?"),
    ],
)
def test_a_feature_that_the_architecture_has_not(tmp_path: Path, device: str, hint: str) -> None:
    devices = load(tmp_path, f"source: a\ndevices: {{a: {{arch: x86_64, profile: pixel_7_pro, {device}}}}}\n")
    with pytest.raises(ConfigError, match="x86_64-linux has no feature") as caught:
        check_targets(devices, tools=False)
    assert (caught.value.where, (caught.value.hint or "")[: len(hint)]) == ("device a: features", hint)


def test_null_without_quotes_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a target, found nothing") as caught:
        load(tmp_path, "source: a\ndevices: {a: {target: null, profile: pixel_7_pro}}\n")
    assert '"null", which needs its quotes' in (caught.value.hint or "")


def test_an_old_tvm_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("targets.tvm.toolchain.version", lambda name: "0.9.1.dev2")
    with pytest.raises(ConfigError, match=r"TVM is of version 0\.9\.1\.dev2, below 0\.27"):
        load_target("tvm").check()


def test_an_option_of_another_target_than_the_one_taken(tmp_path: Path) -> None:
    text = "source: a\ndevices: {a: {profile: pixel_7_pro, options: {accuracy_level: 1}}}\n"
    with pytest.raises(ConfigError, match="the target tvm has no option 'accuracy_level'") as caught:
        load(tmp_path, text)
    assert (caught.value.hint or "").startswith("`target: ort` has it; its options: platform")


def test_a_provider_that_no_target_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`abacus` is not a known provider"):
        load(tmp_path, "source: a\ndevices: {a: {profile: pixel_7_pro, provider: abacus}}\n")


def test_a_machine_that_there_is_no_code_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partc.config.target.architecture", lambda: "riscv64")
    with pytest.raises(ConfigError, match="this machine is riscv64, which there is no code for"):
        load(tmp_path, f"{TVM}arch: host}}}}\n")


def test_a_target_leaves_what_it_does_not_care_for(tmp_path: Path) -> None:
    device = load(tmp_path, GOOD).devices["old"]
    assert device.target_options["arch"] == "aarch64"
    assert load_target(device.target, device.target_options).name == "ort"


def test_links_by_precedence(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert config.link("phone", "board") == Link(12.5e6, 0.002)
    assert config.link("phone", "old") == Link(37.5e6, 0.001)
    # One way wins, wherever it stands, and takes what it leaves out from the next wider entry.
    assert config.link("old", "phone") == Link(2.5e6, 0.001)
    assert config.link("board", "old") is None and config.link("old", "board") is not None


def test_no_links_at_all(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD[: GOOD.index("links:")])
    assert config.link("phone", "board") is None


SOURCE = "source: phone\n"
TVM = "source: a\ndevices: {a: {target: tvm, profile: rtx_3090, "
A = "source: a\ndevices: {a: {target: ort, profile: rtx_3090, "
PHONE = "devices:\n  phone: {target: ort, profile: pixel_7_pro}\n  board: {target: ort, profile: rtx_3090}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source: phone\n", "there are no devices"),
        ("source: phone\ndevices: {}\n", "there are no devices"),
        (PHONE, "the key `source` is missing"),
        (f"source: tablet\n{PHONE}", "the source `tablet` is not one of the devices"),
        (f"source: phone\nobjektive: latency\n{PHONE}", "did you mean `objective`"),
        (f"source: phone\nobjective: speed\n{PHONE}", "latency, throughput"),
        (f"source: phone\nmemory_fraction: 1.2\n{PHONE}", "at most 1"),
        (f"source: phone\nmemory_fraction: 0\n{PHONE}", "above zero"),
        (f"source: phone\nmemory_fraction: .nan\n{PHONE}", "above zero, found nan"),
        (f"source: phone\nmemory_fraction: 1.0e+300\n{PHONE}", r"up to 1e\+18, found the number 1e\+300"),
        (f"source: phone\nmemory_fraction: 1{'0' * 400}\n{PHONE}", "a number of about 401 digits"),
        (f"source: phone\nmemory_fraction: 1{'0' * 5000}\n{PHONE}", "devices.yaml:2: cannot read `10{59}…`"),
        (f"{SOURCE}{PHONE}links:\n  phone-tablet: {{}}\n", "devices.yaml:6: .*unknown device `tablet`"),
        (f"{SOURCE}{PHONE}links:\n  phone-phone: {{}}\n", "to itself"),
        (f"{SOURCE}{PHONE}links:\n  phone: {{}}\n", "not a pair"),
        (f"{SOURCE}{PHONE}links: {{default: {{bandwidth: -5 Mbit/s, latency: 1 ms}}}}\n", "more than zero"),
        (f"{SOURCE}{PHONE}links: {{default: {{bandwidth: 5 Mbit/s, latency: -1 ms}}}}\n", "zero or more"),
        (f"{SOURCE}{PHONE}links: {{default: {{bandwidth: 5 Mb, latency: 1 ms}}}}\n", "accepted units: bit/s"),
        (f"{SOURCE}{PHONE}links: {{default: {{bandwidth: 5 Mbit/s}}}}\n", "the key `latency` is missing"),
        (f"{SOURCE}{PHONE}links: {{default: fast}}\n", "expected {bandwidth"),
        (f"{SOURCE}{PHONE}links: {{phone-board: none, board-phone: none}}\n", "given twice"),
        (f"{SOURCE}{PHONE}  phone: {{target: ort}}\n", "given twice"),
        ("source: Phone\ndevices: {Phone: {target: ort, profile: rtx_3090}}\n", "is not a device name"),
        ("source: a-b\ndevices: {a-b: {target: ort, profile: rtx_3090}}\n", "is not a device name"),
        ("source: a\ndevices: {a: {target: ort, profile: rtx_3091}}\n", "did you mean `rtx_3090`.*pixel_7"),
        (f"{A}options: {{chunks: [16]}}}}}}\n", "the target ort has no option 'chunks'"),
        (f"{A}options: [chunks]}}}}\n", "expected a mapping"),
        (f"{TVM}options: {{feature: [avx2]}}}}}}\n", "did you mean 'features'"),
        (f"{TVM}options: {{features: avx2}}}}}}\n", "expected a list, each a text; found 'avx2'"),
        (f"{TVM}options: {{chunks: [16, many]}}}}}}\n", "expected a list, each a whole number"),
        (f"{TVM}options: {{chunks: [true]}}}}}}\n", "expected a list, each a whole number"),
        (f"{TVM}options: {{platform: 7}}}}}}\n", "devices.a.options.platform: expected a text, found 7"),
        (f"{TVM}options: {{threads: 2}}}}}}\n", "write `threads:` beside `options:`"),
        ("source: a\ndevices: {a: {target: otr, profile: rtx_3090}}\n", "did you mean `ort`"),
        ("source: a\ndevices: {a: {target: ort}}\n", "the key `flops` is missing"),
        (A + "memory: 6}}\n", "has no unit"),
        (A + "threads: 1025}}\n", "1025 threads are more than any device has cores for"),
        (A + "adress: x}}\n", "did you mean `address`"),
        (A + "address: host}}\n", "is not host:port"),
        (A + "address: h:70000}}\n", "is not host:port"),
        (A + "threads: -1}}\n", "at least 0"),
        ("source: a\ndevices: {a: phone}\n", "expected a mapping"),
        ("source: a\ndevices: [a]\n", "expected a mapping"),
    ],
)  # fmt: skip
def test_mistakes_name_place_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}") as caught:
        load(tmp_path, text)
    assert caught.value.where and "devices.yaml" in caught.value.where


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_devices(tmp_path / "absent.yaml")


def test_profiles_state_their_sources() -> None:
    expected = {
        "cubot_x30",
        "jetson_agx_orin",
        "jetson_nano_l",
        "jetson_nano_m",
        "jetson_nano_s",
        "jetson_orin_nx",
    }
    assert expected | {"pixel_7_pro", "rtx_3090"} <= set(profile_names())
    for name in profile_names():
        profile = find_profile(name)
        assert all(len(profile.sources[figure]) > 15 for figure in ("flops", "memory_bandwidth", "memory"))
        assert profile.flops_per_s > 1e9 and profile.memory_bandwidth_bytes_per_s > 1e9


def test_agx_orin_figures_of_the_design() -> None:
    orin = find_profile("jetson_agx_orin")
    assert orin.memory_bandwidth_bytes_per_s == 204.8e9 and orin.flops_per_s == pytest.approx(3.33e12)


def test_places_pins_and_bans(tmp_path: Path) -> None:
    text = GOOD + "place: {phone: [layers 0-1, sub-modules 5], board: layer 2}\npin: {old: [submodule 7]}\n"
    config = load(tmp_path, text)
    assert {name: list(map(str, parts)) for name, parts in config.place.items()} == {
        "phone": ["layers 0-1", "submodule 5"], "board": ["layer 2"],
    }  # fmt: skip
    (pin,) = config.pin["old"]
    assert (pin.kind, pin.first, pin.last) == ("submodules", 7, 7)
    assert pin.where.endswith("devices.yaml:21: pin.old") and config.ban == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("place: {nobody: layers 0}", "`nobody` is not one of the devices"),
        ("place: [layers 0]", "found a list\n  hint: write `place: {phone: layers 0-3}`"),
        ("place: {}", "found an empty mapping"),
        ("pin:", "found nothing\n  hint: write `pin: "),
        ("ban: x", "found the text 'x'"),
        (f"place: {{old: layer 1{'0' * 400}}}", "expected layers or sub-modules"),
        ("pin: {old: layers}", "expected layers or sub-modules"),
        ("pin: {old: [layer 0, 3]}", "expected layers or sub-modules, found the number 3"),
        ("ban: {old: layers 4-2}", "goes backwards"),
        ("ban: {old: []}", "the list is empty"),
    ],
)
def test_ranges_that_cannot_be(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, f"{GOOD}{line}\n")


@pytest.mark.parametrize("text", ["[" * 6000, "{" * 6000, "- " * 6000, "a: " + "[" * 65 + "]" * 65])
def test_deep_yaml_is_refused_at_once(text: str, tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_yaml(file)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("line", ["limits: {battery: 30 %}", "storage: 8 GB"])
def test_a_key_of_a_device_at_the_top(tmp_path: Path, line: str) -> None:
    key = line.partition(":")[0]
    with pytest.raises(ConfigError, match=f"`{key}` has no place here") as caught:
        load(tmp_path, f"{SOURCE}{line}\n{PHONE}")
    assert caught.value.hint == f"write `{key}` in a device, beside its `memory`"


@pytest.mark.parametrize(
    ("device", "message", "hint"),
    [
        ("features: [vnni]", "`features` has no place here", "write `options: {features: …}`"),
        ("quantize: int4", "`quantize` has no place here", "write `quantize` in model.yaml"),
        ("cache: int8", "`cache` has no place here", "write `quantize: {cache: …}` in model.yaml"),
        ("options: {cache: int8}", "`cache` is no option", "write `quantize: {cache: …}` in model.yaml"),
        ("options: {dtype: float16}", "`dtype` is no option", "write `dtype` in model.yaml"),
    ],
)
def test_a_key_of_another_place_in_a_device(tmp_path: Path, device: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, f"{SOURCE}devices:\n  phone: {{profile: pixel_7_pro, {device}}}\n")
    assert caught.value.hint == hint


@pytest.mark.parametrize("entry", ["survive: one", "overlap: 1"])
def test_a_key_of_the_file_in_a_device(tmp_path: Path, entry: str) -> None:
    key = entry.partition(":")[0]
    with pytest.raises(ConfigError, match=f"`{key}` has no place here") as caught:
        load(tmp_path, f"{SOURCE}devices:\n  phone: {{target: ort, profile: pixel_7_pro, {entry}}}\n")
    assert caught.value.hint == f"write `{key}` at the top of the file, beside `source`"
