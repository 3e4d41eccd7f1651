"""Names of files in the folder of a device that several rooms know, and the folders of a build; nothing is read.

```
BUILD/devices/NAME/build.json, placement.json, placements/, partc-runner, keys/, preprocessor/
```
"""

from __future__ import annotations

from pathlib import Path

BUILD_FILE = "build.json"
PLACEMENT_FILE = "placement.json"
PLACEMENTS_FOLDER = "placements"
"""Placements for the loss of a device: sealed by themselves, as placement.json is, and checked where they are read."""
RUNNER_FILE = "partc-runner"
"""The native runner, where the folder has one: what a build is does not depend on it."""
KEYS_FOLDER = "keys"
PREPROCESSOR_FOLDER = "preprocessor"
"""Folder, on the source device, of what turns a picture or a sound into the model's tensor."""
PREPROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""Files of a checkpoint that say what becomes of a picture or a sound."""

_FORMAT_1 = "manifest.json"


def device_folders(build_dir: Path) -> list[Path]:
    """The folders of a build's devices, sorted; those of format 1 too, which `load_role` refuses with a hint."""
    files = (BUILD_FILE, _FORMAT_1)
    return sorted({path.parent for file in files for path in build_dir.glob(f"devices/*/{file}")})
