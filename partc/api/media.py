"""Pictures and sound of `partc run` as tensors, by the checkpoint's own preprocessor (extra `vision`)."""

from __future__ import annotations

import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partc.errors import RunError
from partc.extras import install_command
from partc.format.media import USUAL_SIZE, argument_of, blank_picture
from partc.format.names import PREPROCESSOR_FOLDER
from partc.quiet import quieten_transformers

if TYPE_CHECKING:
    from partc.format.dtypes import Array
    from partc.format.role import Role

_SCALES = {1: 128.0, 2: 32768.0, 4: 2147483648.0}
"""Bytes of a sample → the value that stands for 1.0."""


def read_media(
    images: Sequence[Path], sounds: Sequence[Path], batch: bool, role: Role, build: Path
) -> list[dict[str, Array]]:
    """The inputs of the requests for pictures and sounds: one each, or with `batch` all in one.

    A model that reads them among its tokens takes one a request.

    Raises:
        RunError: see `read_pictures` and `read_sounds`.
    """
    has_prompt = role.model.placeholder_token is not None
    frames = "pixel_values" in role.inputs and len(role.inputs["pixel_values"].shape) == 5
    together = not has_prompt and (batch or frames)  # the pictures are the frames of one video
    pictures = [images] if together and images else [[file] for file in images]
    pieces = [sounds] if batch and not has_prompt and sounds else [[file] for file in sounds]
    return [read_pictures(some, role, build) for some in pictures] + [
        read_sounds(some, role, build) for some in pieces
    ]


def read_pictures(files: Sequence[Path], role: Role, build: Path) -> dict[str, Array]:
    """The inputs of one request for these pictures: [pictures, channels, height, width], or of a video its frames.

    Of a picture that is read among tokens they are what the checkpoint's preprocessor makes of it: [1, channels,
    height, width], [patches, width], [1, crops, channels, height, width].

    Raises:
        RunError: the model takes no pictures, one cannot be read, or the extra or the preprocessor is missing.
    """
    name, shape = _input_of(role, "--image", "pixel_values")
    process = _processor(build, role, "AutoImageProcessor")
    pictures = [_picture(file, role.model.picture_size) for file in files]
    if role.model.placeholder_token is not None:
        made = process(pictures[0], return_tensors="np")
        blank = blank_picture(role.model.picture_size or USUAL_SIZE)
        _check_facts(files[0], made, process(blank, return_tensors="np"), role)
        return _made(made, role, "--image")
    if len(shape) == 5:  # the pictures are the frames of one video
        arrays = np.asarray(process(pictures, return_tensors="np")[name])
        return {name: _fitting(arrays.reshape(-1, *arrays.shape[-4:]), shape, "--image")}
    arrays = np.concatenate([np.asarray(process(one, return_tensors="np")[name]) for one in pictures])
    return {name: _fitting(arrays, shape, "--image")}


def read_sounds(files: Sequence[Path], role: Role, build: Path) -> dict[str, Array]:
    """The inputs of one request for these pieces of sound, padded with silence to the length of the build.

    Raises:
        RunError: as `read_pictures`, or a piece is too long or has another sampling rate than the model.
    """
    name, shape = _input_of(role, "--audio", "input_values", "input_features")
    process = _processor(build, role, "AutoFeatureExtractor")
    rate = int(process.sampling_rate)
    options: dict[str, Any] = {"sampling_rate": rate, "return_tensors": "np"}
    has_prompt = role.model.placeholder_token is not None
    most = _most_samples(process, shape, is_fixed=has_prompt)
    if len(shape) == 2:
        options |= {"padding": "max_length", "max_length": most}
    sounds = [_sound(file, rate) for file in files]
    for file, sound in zip(files, sounds, strict=True):
        _check_length(file, len(sound), most)
    if has_prompt:
        whole = np.pad(sounds[0], (0, 0 if most is None else most - len(sounds[0])))
        return _made(process(whole, **{"padding": "max_length", **options}), role, "--audio")
    arrays = np.concatenate([np.asarray(process(sound, **options)[name]) for sound in sounds])
    return {name: _fitting(arrays, shape, "--audio")}


def media_option(role: Role) -> str:
    """The option of `partc run` for what a model takes instead of tokens."""
    if any(name.endswith("pixel_values") for name in role.inputs):
        return "--image FILE"
    if any(name.endswith(("input_values", "input_features")) for name in role.inputs):
        return "--audio FILE"
    return "--input FILE.npz"


def _input_of(role: Role, option: str, *keys: str) -> tuple[str, tuple[int, ...]]:
    """The tensor that the model takes for what preprocessors call so, and its shape, where sizes that vary are 0."""
    found = next((name for key in keys if (name := argument_of(key, role.inputs))), None)
    if found is None:
        has_media = not role.takes_tokens or role.model.placeholder_token is not None
        needed = media_option(role) if has_media else "--prompt TEXT"
        raise RunError(f"this model takes {', '.join(role.inputs)}", where=option, hint=f"give {needed}")
    return found, _sizes(role, found)


def _sizes(role: Role, name: str) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else 0 for size in role.inputs[name].shape)


def _check_facts(file: Path, made: Mapping[str, Any], blank: Mapping[str, Any], role: Role) -> None:
    """Hold what a preprocessor makes besides the inputs against what the build was made for: grids, sizes, masks."""
    facts = [
        (np.asarray(made[key]), np.asarray(blank[key])) for key in made if not argument_of(key, role.inputs)
    ]
    if not all(np.array_equal(found, known) for found, known in facts if found.dtype.kind != "f"):
        raise RunError(
            "the preprocessor divides this picture otherwise than those that the build is for",
            where=str(file),
            hint="crop it to another shape, or write `image_size` in model.yaml and compile again",
        )


def _made(made: Mapping[str, Any], role: Role, option: str) -> dict[str, Array]:
    """The inputs of a model among those that a preprocessor made; grids and masks are known to the build."""
    named = {argument_of(key, role.inputs): np.asarray(value) for key, value in made.items()}
    return {name: _fitting(array, _sizes(role, name), option) for name, array in named.items() if name}


def _processor(build: Path, role: Role, kind: str) -> Any:
    folder = build / "devices" / role.source / PREPROCESSOR_FOLDER
    if not folder.is_dir():
        raise RunError(
            "the build has no preprocessor: the model has no preprocessor_config.json",
            where=str(build),
            hint="prepare the tensor yourself and give it: --input FILE.npz",
        )
    try:
        import transformers
    except ImportError as error:
        raise RunError(
            "transformers is not installed", where=str(folder), hint=install_command("vision")
        ) from error
    quieten_transformers(transformers.utils.logging)
    try:
        return getattr(transformers, kind).from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except ImportError as error:  # transformers names the package that this preprocessor needs
        needed = " ".join(str(error).split()).partition(". ")[0]
        raise RunError(
            needed, where=str(folder), hint=f"install that package, or {install_command('vision')}"
        ) from error
    except Exception as error:  # whatever transformers raises for a config that it cannot read
        message = f"transformers cannot make the preprocessor: {' '.join(str(error).split())[:200]}"
        raise RunError(message, where=str(folder), hint="give the tensor itself: --input FILE.npz") from error


def _picture(file: Path, size: tuple[int, int] | None) -> Any:
    """The picture in colours, brought to a height and width where they are given."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise RunError("pillow is not installed", where=str(file), hint=install_command("vision")) from error
    _check_file(file)
    try:
        with Image.open(file) as picture:
            whole = picture.convert("RGB")
            return whole if size is None else whole.resize(size[::-1], Image.Resampling.BICUBIC)
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise RunError("not a picture", where=str(file), hint="give a JPEG, PNG or WebP file") from error


def _sound(file: Path, rate: int) -> Array:
    """Samples in -1 … 1 of a piece of sound, its channels averaged."""
    _check_file(file)
    samples, found = _wave(file) if file.suffix.lower() == ".wav" else _other_sound(file)
    if found != rate:
        raise RunError(
            f"it has {found} samples a second, and the model takes {rate}",
            where=str(file),
            hint=f"convert it: ffmpeg -i {file.name} -ar {rate} -ac 1 converted.wav",
        )
    return np.asarray(samples.mean(axis=1), np.float32)


def _wave(file: Path) -> tuple[Array, int]:
    """[samples, channels] of a .wav file, and its sampling rate; formats that Python does not read go to soundfile."""
    try:
        with wave.open(str(file), "rb") as stream:
            width, channels = stream.getsampwidth(), stream.getnchannels()
            data, rate = stream.readframes(stream.getnframes()), stream.getframerate()
    except (wave.Error, EOFError):
        return _other_sound(file)
    if width not in _SCALES:
        return _other_sound(file)
    if width == 1:  # the only unsigned one
        numbers = np.frombuffer(data, np.uint8).astype(np.float64) - 128
    else:
        numbers = np.frombuffer(data, f"<i{width}").astype(np.float64)
    return (numbers / _SCALES[width]).reshape(-1, channels), rate


def _other_sound(file: Path) -> tuple[Array, int]:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its library of C is missing
        raise RunError(
            "soundfile is not installed", where=str(file), hint=install_command("vision")
        ) from error
    try:
        samples, rate = soundfile.read(file, dtype="float64", always_2d=True)
    except Exception as error:  # soundfile raises RuntimeErrors of its own
        raise RunError("not a sound", where=str(file), hint="give a WAV, FLAC or OGG file") from error
    return samples, int(rate)


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise RunError("no such file", where=str(file), hint="give the file of a picture or of a sound")


def _most_samples(process: Any, shape: tuple[int, ...], *, is_fixed: bool) -> int | None:
    """The length of a sound that the build takes; None: its preprocessor does not say."""
    if len(shape) == 2:
        return shape[1]
    own, hop = getattr(process, "n_samples", None), getattr(process, "hop_length", None)
    if own is not None or hop is None or not is_fixed:
        return own
    frames = next(size for size in reversed(shape) if size != process.feature_size)
    return int(hop) * frames


def _check_length(file: Path, samples: int, most: int | None) -> None:
    """Refuse silence of no length, and what would be cut off."""
    if not samples:
        raise RunError("there is no sound in it", where=str(file), hint="give a longer recording")
    if most is not None and samples > most:
        raise RunError(
            f"{samples} samples are more than the {most} that the build takes",
            where=str(file),
            hint="cut it into pieces, or compile with a larger `samples` in model.yaml",
        )


def _fitting(array: Array, shape: tuple[int, ...], option: str) -> Array:
    """The array as float32, where it has the sizes of the build; a first size that varies is the batch."""
    begin = int(shape[:1] == (0,))
    if array.shape[begin:] != shape[begin:]:
        key = "image_size" if option == "--image" else "samples"
        raise RunError(
            f"the preprocessor makes {list(array.shape[begin:])}, and the build takes {list(shape[begin:])}",
            where=option,
            hint=f"write `{key}` in model.yaml as the preprocessor has it, and compile again",
        )
    return np.ascontiguousarray(array, np.float32)
