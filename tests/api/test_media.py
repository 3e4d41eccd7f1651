"""Pictures and sound of `partc run`, as the checkpoint's own preprocessor makes tensors of them."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from partc.api.media import _check_facts, _processor, read_media, read_pictures, read_sounds
from partc.errors import RunError
from partc.format.build import TensorType
from partc.format.media import argument_of
from partc.format.names import PREPROCESSOR_FOLDER
from partc.format.role import Role

pytestmark = pytest.mark.hf

PICTURES = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}
SOUNDS = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 8000, "do_normalize": False}
RATE = 8000


def role(name: str, *shape: int) -> Role:
    """The role of a source whose model takes one tensor."""
    inputs = {name: TensorType("float32", ("batch", *shape))}
    model = SimpleNamespace(placeholder_token=None, picture_size=None)
    return cast(
        "Role", SimpleNamespace(source="a", inputs=inputs, takes_tokens=name == "input_ids", model=model)
    )


def with_prompt(name: str, *shape: int, picture_size: tuple[int, int] | None = None) -> Role:
    """The role of a source whose model reads one tensor of a fixed shape among its tokens."""
    inputs = {
        "input_ids": TensorType("int64", ("batch", "sequence")),
        name: TensorType("float32", shape),
    }
    model = SimpleNamespace(placeholder_token=9, picture_size=picture_size)
    return cast("Role", SimpleNamespace(source="a", inputs=inputs, takes_tokens=True, model=model))


def build(folder: Path, preprocessor: dict[str, Any]) -> Path:
    """A build that has a preprocessor and nothing else."""
    place = folder / "devices" / "a" / PREPROCESSOR_FOLDER
    place.mkdir(parents=True)
    (place / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    return folder


def picture(file: Path, colour: int) -> Path:
    """A picture of one colour, of other sizes than the model's."""
    from PIL import Image

    Image.new("RGB", (20, 10), (colour, colour, colour)).save(file)
    return file


def sound(file: Path, samples: list[int], channels: int = 1, rate: int = RATE, width: int = 2) -> Path:
    """A WAV file; the samples of all channels take turns."""
    with wave.open(str(file), "wb") as stream:
        stream.setnchannels(channels)
        stream.setsampwidth(width)
        stream.setframerate(rate)
        stream.writeframes(np.array(samples, f"<i{width}" if width > 1 else np.uint8).tobytes())
    return file


def test_pictures_are_scaled_and_normalised(tmp_path: Path) -> None:
    made = build(tmp_path, PICTURES)
    files = [picture(tmp_path / "white.png", 255), picture(tmp_path / "black.png", 0)]
    found = read_pictures(files, role("pixel_values", 3, 8, 8), made)["pixel_values"]
    assert found.shape == (2, 3, 8, 8)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0], 1, atol=1e-6)  # mean and deviation of 0.5, transformers' default
    np.testing.assert_allclose(found[1], -1, atol=1e-6)


def test_pictures_are_requests_or_one_batch_or_a_video(tmp_path: Path) -> None:
    made = build(tmp_path, PICTURES)
    files = [picture(tmp_path / f"{colour}.png", colour) for colour in (0, 255)]
    taken = role("pixel_values", 3, 8, 8)
    shapes = [[array.shape for array in one.values()] for one in read_media(files, [], False, taken, made)]
    assert shapes == [[(1, 3, 8, 8)], [(1, 3, 8, 8)]]
    (batch,) = read_media(files, [], True, taken, made)
    assert batch["pixel_values"].shape == (2, 3, 8, 8)


def test_the_frames_of_a_video(tmp_path: Path) -> None:
    made = build(
        tmp_path, {**PICTURES, "image_processor_type": "VideoMAEImageProcessor", "do_center_crop": False}
    )
    files = [picture(tmp_path / f"{colour}.png", colour) for colour in (0, 255)]
    (video,) = read_media(files, [], False, role("pixel_values", 2, 3, 8, 8), made)
    assert video["pixel_values"].shape == (1, 2, 3, 8, 8)
    assert video["pixel_values"][0, 0].max() < video["pixel_values"][0, 1].min()


@pytest.mark.parametrize(
    ("width", "samples", "expected"),
    [
        (1, [128, 0, 192], [0, -1, 0.5]),
        (2, [0, -32768, 16384], [0, -1, 0.5]),
        (4, [0, -(2**31), 2**30], [0, -1, 0.5]),
    ],
)
def test_sound_is_padded_with_silence(
    tmp_path: Path, width: int, samples: list[int], expected: list[float]
) -> None:
    file = sound(tmp_path / "sound.wav", samples, width=width)
    found = read_sounds([file], role("input_values", 5), build(tmp_path, SOUNDS))["input_values"]
    np.testing.assert_allclose(found, [[*expected, 0, 0]], atol=1e-6)


def test_channels_are_averaged(tmp_path: Path) -> None:
    file = sound(tmp_path / "sound.wav", [16384, 0, 0, 16384], channels=2)
    (found,) = read_media([], [file], False, role("input_values", 2), build(tmp_path, SOUNDS))
    np.testing.assert_allclose(found["input_values"], [[0.25, 0.25]], atol=1e-6)


def test_what_is_no_picture(tmp_path: Path) -> None:
    made, taken = build(tmp_path, PICTURES), role("pixel_values", 3, 8, 8)
    (tmp_path / "text.jpg").write_text("text")
    with pytest.raises(RunError, match="not a picture"):
        read_pictures([tmp_path / "text.jpg"], taken, made)
    with pytest.raises(RunError, match="no such file"):
        read_pictures([tmp_path / "nowhere.jpg"], taken, made)


def test_sound_that_does_not_fit(tmp_path: Path) -> None:
    made, taken = build(tmp_path, SOUNDS), role("input_values", 2)
    with pytest.raises(RunError, match="3 samples are more than the 2"):
        read_sounds([sound(tmp_path / "long.wav", [1, 2, 3])], taken, made)
    with pytest.raises(RunError, match="no sound in it"):
        read_sounds([sound(tmp_path / "empty.wav", [])], taken, made)
    with pytest.raises(RunError, match="44100 samples a second") as caught:
        read_sounds([sound(tmp_path / "fast.wav", [1], rate=44100)], taken, made)
    assert "-ar 8000" in str(caught.value.hint)


def test_a_picture_of_other_sizes_than_the_build(tmp_path: Path) -> None:
    made = build(tmp_path, PICTURES)
    with pytest.raises(RunError, match=r"makes \[3, 8, 8\], and the build takes \[3, 16, 16\]"):
        read_pictures([picture(tmp_path / "white.png", 255)], role("pixel_values", 3, 16, 16), made)


@pytest.mark.parametrize(
    ("name", "option", "hint"),
    [
        ("input_ids", "--image", "--prompt TEXT"),
        ("input_values", "--image", "--audio FILE"),
        ("pixel_values", "--audio", "--image FILE"),
    ],
)
def test_another_kind_of_input(tmp_path: Path, name: str, option: str, hint: str) -> None:
    pictures, sounds = ([tmp_path], []) if option == "--image" else ([], [tmp_path])
    with pytest.raises(RunError, match=f"this model takes {name}") as caught:
        read_media(pictures, sounds, False, role(name, 3), tmp_path)
    assert (caught.value.where, caught.value.hint) == (option, f"give {hint}")


def test_a_build_without_a_preprocessor(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no preprocessor"):
        read_pictures([tmp_path / "x.png"], role("pixel_values", 3, 8, 8), tmp_path)


def test_a_preprocessor_that_nobody_knows(tmp_path: Path) -> None:
    made = build(tmp_path, {"image_processor_type": "NoSuchProcessor"})
    with pytest.raises(RunError, match="transformers cannot make the preprocessor"):
        read_pictures([picture(tmp_path / "x.png", 1)], role("pixel_values", 3, 8, 8), made)


@pytest.mark.parametrize("name", ["pixel_values", "image_pixel_values"])
def test_pictures_among_tokens_are_requests_of_their_own(tmp_path: Path, name: str) -> None:
    """Whatever the model calls them, and also with `--batch`."""
    made, taken = build(tmp_path, PICTURES), with_prompt(name, 1, 3, 8, 8)
    files = [picture(tmp_path / f"{colour}.png", colour) for colour in (0, 255)]
    black, white = read_media(files, [], True, taken, made)
    assert [*black] == [*white] == [name]
    np.testing.assert_allclose(black[name], np.full((1, 3, 8, 8), -1), atol=1e-6)
    np.testing.assert_allclose(white[name], np.full((1, 3, 8, 8), 1), atol=1e-6)


def test_all_of_a_fixed_shape_is_compared(tmp_path: Path) -> None:
    made = build(tmp_path, PICTURES)
    with pytest.raises(RunError, match=r"makes \[1, 3, 8, 8\], and the build takes \[2, 3, 8, 8\]"):
        read_pictures([picture(tmp_path / "x.png", 1)], with_prompt("pixel_values", 2, 3, 8, 8), made)


def test_pictures_are_brought_to_the_size_of_the_build(tmp_path: Path) -> None:
    """Where the preprocessor itself leaves them as they are."""
    made = build(tmp_path, {**PICTURES, "do_resize": False})
    file = picture(tmp_path / "x.png", 255)
    taken = with_prompt("pixel_values", 1, 3, 6, 4, picture_size=(6, 4))
    assert read_pictures([file], taken, made)["pixel_values"].shape == (1, 3, 6, 4)
    with pytest.raises(RunError, match=r"makes \[1, 3, 10, 20\]"):
        read_pictures([file], with_prompt("pixel_values", 1, 3, 6, 4), made)


def test_pictures_are_divided_as_the_build_expects(tmp_path: Path) -> None:
    """As many patches in another grid are another picture; the build knows the grid of its own size alone."""
    kind = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 8, "merge_size": 1}
    made = build(tmp_path, {**kind, "size": {"shortest_edge": 64, "longest_edge": 100_000}})
    taken, file = with_prompt("pixel_values", 6, 384, picture_size=(16, 24)), picture(tmp_path / "x.png", 7)
    assert read_pictures([file], taken, made)["pixel_values"].shape == (6, 384)
    process = _processor(made, taken, "AutoImageProcessor")
    wide, high = (
        process(np.zeros((*size, 3), np.uint8), return_tensors="np") for size in ((16, 24), (24, 16))
    )
    assert wide["pixel_values"].shape == high["pixel_values"].shape
    with pytest.raises(RunError, match="divides this picture otherwise"):
        _check_facts(file, high, wide, taken)


def test_sound_among_tokens_is_padded_with_silence(tmp_path: Path) -> None:
    made = build(tmp_path, SOUNDS)
    file = sound(tmp_path / "sound.wav", [16384, -32768])
    found = read_sounds([file], with_prompt("audio_input_values", 1, 4), made)
    np.testing.assert_allclose(found["audio_input_values"], [[0.5, -1, 0, 0]], atol=1e-6)
    with pytest.raises(RunError, match="2 samples are more than the 1"):
        read_sounds([file], with_prompt("audio_input_values", 1, 1), made)


def test_features_of_a_sound_among_tokens(tmp_path: Path) -> None:
    """The rest of the build's second is silence."""
    made = build(
        tmp_path,
        {
            "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 8, "sampling_rate": 16000,
            "hop_length": 160, "chunk_length": 1, "n_fft": 400,
        },
    )  # fmt: skip
    file = sound(tmp_path / "sound.wav", [16384, -32768] * 800, rate=16000)
    found = read_sounds([file], with_prompt("input_features", 1, 8, 100), made)["input_features"]
    assert found.shape == (1, 8, 100)
    assert found[..., :10].std() > found[..., 20:].std()


@pytest.mark.parametrize(
    ("name", "option", "hint"),
    [("image_pixel_values", "--audio", "--image FILE"), ("input_features", "--image", "--audio FILE")],
)
def test_another_kind_of_media_beside_a_prompt(tmp_path: Path, name: str, option: str, hint: str) -> None:
    pictures, sounds = ([tmp_path], []) if option == "--image" else ([], [tmp_path])
    with pytest.raises(RunError, match=f"this model takes input_ids, {name}") as caught:
        read_media(pictures, sounds, False, with_prompt(name, 1, 3), tmp_path)
    assert (caught.value.where, caught.value.hint) == (option, f"give {hint}")


def test_names_of_the_tensors_of_a_picture() -> None:
    assert argument_of("pixel_values", ["input_ids", "image_pixel_values"]) == "image_pixel_values"
    assert argument_of("pixel_values", ["pixel_values", "image_pixel_values"]) == "pixel_values"
    assert argument_of("input_features", ["audio_input_features"]) == "audio_input_features"
    assert argument_of("pixel_values", ["input_ids", "pixel_values_videos"]) is None
