"""A GGUF file as a checkpoint folder: config.json and tokenizer beside links to its parts, kept in the user's cache.

The folder's name is a hash of the file's place, size and times, and of the code that makes the folder: a file that
changes gets another one. config.json is written last: a folder that has it is whole.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from partc.atomic import write_file
from partc.errors import ModelError
from partc.format.digests import data_digest
from partc.format.files import stamp
from partc.frontend.gguf.architectures import config_of
from partc.frontend.gguf.file import GgufFile
from partc.frontend.gguf.tokenizer import tokenizer_files
from partc.kept import user_cache
from partc.pipeline.versions import code_version

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
_LAST = "config.json"


def parts_of(path: Path) -> list[Path]:
    """All parts of a file that may be split, in their order.

    Raises:
        ModelError: it is not the first part, or one is missing.
    """
    match = _PART.match(path.name)
    if match is None:
        return [path]
    if int(match["number"]) != 1:
        first = f"{match['stem']}-00001-of-{match['count']}.gguf"
        raise ModelError("this is not the first part of the model", where=str(path), hint=f"give {first}")
    count = int(match["count"])
    names = (f"{match['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))
    parts = [path.with_name(name) for name in names]
    for part in parts:
        if not part.is_file():
            raise ModelError(
                f"{part.name} is missing", where=str(path), hint="download all parts of the model"
            )
    return parts


def gguf_folder(path: Path) -> Path:
    """The folder that stands for a file; it is made where there is none yet.

    Raises:
        ModelError: the file is damaged, or of an architecture, type or tokenizer that is not read.
    """
    parts = parts_of(path)
    if not path.is_file():
        raise ModelError("no such file", where=str(path), hint="give a .gguf file")
    stamps = [stamp(part) for part in parts]
    key = data_digest({"code": code_version("partc.frontend.gguf"), "files": stamps})[:24]
    folder = user_cache() / "gguf" / key
    if not (folder / _LAST).is_file():
        _make(folder, parts)
    return folder


def _make(folder: Path, parts: list[Path]) -> None:
    """Write the files of a folder; processes that do so at once write the same."""
    file = GgufFile(parts[0])
    contents = {**tokenizer_files(file), _LAST: config_of(file)}
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for part in parts:
        with suppress(FileExistsError):
            (folder / part.name).symlink_to(part.resolve())
    for name, content in contents.items():
        write_file(folder / name, json.dumps(content, ensure_ascii=False, indent=1))
