"""Parts that all pods of partc have in common: no rights, and keys that their user alone can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMESPACE = "partc"
LABEL = "partc.dev/device"
"""The label of the node that bears a device."""
USER = 10001
KEYS_FOLDER = "/keys"

Json = dict[str, Any]

KEYS_IN_MEMORY: Json = {"name": "keys", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
"""The volume that `private_copies` fills."""


def not_root() -> Json:
    """The security context of a pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def confined() -> Json:
    """The security context of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def secret(volume: str, name: str) -> Json:
    """The volume of a Secret."""
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440}}


def private_copies(image: str, folders: Mapping[str, str]) -> Json:
    """The container that copies secrets so that the pod's user alone can read them.

    Args:
        image: any image with a shell and `install`.
        folders: volume of a Secret → the folder of its files in the volume `keys`.
    """
    commands = [
        f"install -d -m 700 {KEYS_FOLDER}/{folder} && install -m 600 /{volume}/* {KEYS_FOLDER}/{folder}/"
        for volume, folder in folders.items()
    ]
    mounts: list[Json] = [{"name": one, "mountPath": f"/{one}", "readOnly": True} for one in folders]
    return {
        "name": "keys",
        "image": image,
        "command": ["/bin/sh", "-c", " && ".join(commands)],
        "resources": {"limits": {"memory": "32Mi"}, "requests": {"memory": "32Mi"}},
        "securityContext": confined(),
        "volumeMounts": [*mounts, {"name": "keys", "mountPath": KEYS_FOLDER}],
    }
