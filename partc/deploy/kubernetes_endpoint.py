"""The endpoint in Kubernetes: a Deployment on the node of the source, its Service, its Secrets, and the image.

The pod has a network of its own: it reaches the source at the address of the node on which both are. Two Secrets are
made from the build and from a file of keys, so no manifest holds one: `partc-client`, which the source asks for, and
`partc-api-keys`, of which every client must send one.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from partc.deploy import endpoint as door
from partc.deploy.endpoint import Endpoint
from partc.deploy.pods import (
    KEYS_IN_MEMORY,
    LABEL,
    NAMESPACE,
    Json,
    confined,
    not_root,
    private_copies,
    secret,
)
from partc.deploy.runners import Runner
from partc.extras import wheel_command, wheel_name

CONTAINERFILE = "Containerfile"
_NAME = "endpoint"
_CLIENT, _API_KEYS = "partc-client", f"partc-{door.KEYS_FILE}"
_LABELS = {"app": "partc", "partc.dev/part": _NAME}
_MEMORY = ("128Mi", "1Gi")
"""Requested, and the limit: a server of text holds a tokenizer and the answers under way."""


def deployment(endpoint: Endpoint, folder: str, image: str) -> Json:
    """One pod with `partc serve`; the new one starts when the old one has ended."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _NAME, "namespace": NAMESPACE, "labels": _LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod(endpoint, folder, image)},
        },
    }


def service() -> Json:
    """The address of the endpoint within the cluster: `endpoint.partc:8000`."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME, "namespace": NAMESPACE, "labels": _LABELS},
        "spec": {
            "selector": _LABELS,
            "ports": [{"name": "http", "port": door.PORT, "targetPort": "http"}],
        },
    }


def secret_steps(build: str) -> list[str]:
    """The commands that make both Secrets and start the endpoint."""
    create = f"kubectl -n {NAMESPACE} create secret generic"
    return [
        f"{create} {_CLIENT} --from-file={quote(f'{build}/keys')}",
        door.NEW_KEY,
        f"{create} {_API_KEYS} --from-file={door.KEYS_FILE}",
        "kubectl apply -f endpoint.yaml -f service.yaml",
    ]


def containerfile(runners: Sequence[Runner]) -> str:
    """The recipe of an image with `partc-runner`, `partc serve`, and the engines of these devices."""
    engines = {one.engine for one in runners if not one.is_native} & {"ort"}
    extras = ",".join(["serve", *sorted(engines)])
    return (
        "# An image with partc-runner and partc; its wheel stands beside this file.\n"
        "FROM python:3.11-slim\n"
        f"COPY {wheel_name()} /tmp/\n"
        f'RUN pip install --no-cache-dir "/tmp/{wheel_name()}[{extras}]" && rm /tmp/{wheel_name()}\n'
        "USER 10001:10001\n"
    )


def image_steps(image: str) -> list[str]:
    """The commands that build the image and push it."""
    name = quote(image)
    return [wheel_command("."), f"podman build -t {name} -f {CONTAINERFILE} .", f"podman push {name}"]


def _pod(endpoint: Endpoint, folder: str, image: str) -> Json:
    place = f"{folder}/{door.FOLDER}"
    return {
        "nodeSelector": {LABEL: endpoint.source.device},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": not_root(),
        "initContainers": [private_copies(image, {"client": "client", "api": "api"})],
        "containers": [_container(endpoint, image)],
        "volumes": [
            {"name": "build", "hostPath": {"path": place, "type": "Directory"}},
            secret("client", _CLIENT),
            secret("api", _API_KEYS),
            KEYS_IN_MEMORY,
        ],
    }


def _container(endpoint: Endpoint, image: str) -> Json:
    keys = f"/keys/api/{door.KEYS_FILE}"
    return {
        "name": _NAME,
        "image": image,
        "command": ["partc", "serve", "/build"],
        "args": [
            *("--connect", f"$(NODE):{endpoint.source.port}", "--host", "0.0.0.0"),
            *("--port", str(door.PORT), "--api-key-file", keys),
        ],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
        "ports": [{"name": "http", "containerPort": door.PORT}],
        "resources": {"requests": {"memory": _MEMORY[0]}, "limits": {"memory": _MEMORY[1]}},
        "securityContext": confined(),
        # /health tells whether a ring stands; a server without one waits for it and must not be killed for that.
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
        "livenessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 10, "failureThreshold": 3},
        "volumeMounts": [
            {"name": "build", "mountPath": "/build", "readOnly": True},
            {"name": "keys", "mountPath": "/build/keys", "subPath": "client", "readOnly": True},
            {"name": "keys", "mountPath": "/keys/api", "subPath": "api", "readOnly": True},
        ],
    }
