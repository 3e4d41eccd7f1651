"""Manifests for Kubernetes: a namespace, and a StatefulSet for each device, since devices differ.

A pod runs on the node that bears its device's label, in the network of its host: addresses are in the placement,
and an overlay would cost time at every hop. It is not restarted when a manifest changes (`OnDelete`): a rolling
update would break a ring in flight. Keys come from a Secret that is made from the device's folder, so no manifest
holds one; they are copied into memory, since a runner refuses keys that others can read, and Kubernetes cannot give
a file to one user alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

import yaml

from partc.deploy.endpoint import Endpoint, copy_endpoint
from partc.deploy.kubernetes_endpoint import (
    CONTAINERFILE,
    containerfile,
    deployment,
    image_steps,
    secret_steps,
    service,
)
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
from partc.deploy.runners import Files, Runner
from partc.errors import ConfigError
from partc.format.names import RUNNER_FILE

_NAME = re.compile("[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_GONE_S = 10
"""A node that is out of reach loses its pod after so long; a ring has healed by then."""


def kubernetes_files(runners: Sequence[Runner], endpoint: Endpoint | None, folder: str, image: str) -> Files:
    """One manifest for each device, the namespace, the endpoint with its Service, and what the image is made of.

    Args:
        runners: the devices.
        endpoint: what `partc serve` needs; None: the model takes no text.
        folder: where the devices' folders lie on each node.
        image: a container image in which `partc-runner` and `partc` are commands; of devices with a native runner, any
            with a shell and glibc.

    Raises:
        ConfigError: the name of a device cannot be one in Kubernetes.
    """
    check_names(runners)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    files = {"namespace.yaml": _yaml(space)}
    for runner in runners:
        files[f"runner-{kubernetes_name(runner.device)}.yaml"] = _yaml(_stateful_set(runner, folder, image))
    if endpoint is not None:
        files["endpoint.yaml"] = _yaml(deployment(endpoint, folder, image))
        files["service.yaml"] = _yaml(service())
    return {**files, CONTAINERFILE: containerfile(runners)}


def kubernetes_steps(
    runners: Sequence[Runner], endpoint: Endpoint | None, build: str, folder: str, image: str
) -> list[str]:
    """The commands that make the image and bring each node its files; `build` as the folder of the files has it."""
    steps = [*image_steps(image), "kubectl apply -f namespace.yaml"]
    for one in runners:
        name = kubernetes_name(one.device)
        source, keys = quote(f"{build}/devices/{one.device}"), quote(f"{build}/devices/{one.device}/keys")
        steps += [
            f"kubectl label node NODE-OF-{name} {LABEL}={one.device}",
            f"rsync -a --exclude 'keys/*' {source} root@NODE-OF-{name}:{folder}/",
            f"kubectl -n {NAMESPACE} create secret generic partc-keys-{name} --from-file={keys}",
            f"kubectl apply -f runner-{name}.yaml",
        ]
    if endpoint is None:
        return steps
    host = f"NODE-OF-{kubernetes_name(endpoint.source.device)}"
    return [*steps, *copy_endpoint(endpoint, build, host, folder, with_keys=False), *secret_steps(build)]


def kubernetes_name(device: str) -> str:
    """A device's name where Kubernetes takes no underscore; devices have no hyphen, so no two become one."""
    return device.replace("_", "-")


def check_names(runners: Sequence[Runner]) -> None:
    """Refuse names of devices that Kubernetes does not take.

    Raises:
        ConfigError: names the device.
    """
    for runner in runners:
        if not _NAME.fullmatch(kubernetes_name(runner.device)):
            hint = "call it otherwise, and compile again: at most 50 characters, none of them _ at the end"
            raise ConfigError(f"{runner.device!r} is no name in Kubernetes", where="devices.yaml", hint=hint)


def _stateful_set(runner: Runner, folder: str, image: str) -> Json:
    name = f"runner-{kubernetes_name(runner.device)}"
    labels = {"app": "partc", LABEL: runner.device}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels}, "spec": _pod(runner, folder, image)},
        },
    }


def _pod(runner: Runner, folder: str, image: str) -> Json:
    selector = {LABEL: runner.device}
    if runner.arch in _ARCHITECTURES:
        selector["kubernetes.io/arch"] = _ARCHITECTURES[runner.arch]
    gpu: Json = {"runtimeClassName": "nvidia"} if runner.is_gpu else {}
    return {
        **gpu,
        "nodeSelector": selector,
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": not_root(),
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{what}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _GONE_S,
            }
            for what in ("unreachable", "not-ready")
        ],
        "initContainers": [private_copies(image, {"secret": "keys"})],
        "containers": [_container(runner, image)],
        "volumes": [
            {"name": "bundle", "hostPath": {"path": f"{folder}/{runner.device}", "type": "Directory"}},
            secret("secret", f"partc-keys-{kubernetes_name(runner.device)}"),
            KEYS_IN_MEMORY,
        ],
    }


def _container(runner: Runner, image: str) -> Json:
    memory = str(runner.limit_bytes)
    gpu = {"nvidia.com/gpu": 1} if runner.is_gpu else {}
    listen = f"0.0.0.0:{runner.port}"
    program = f"/bundle/{RUNNER_FILE}" if runner.is_native else "partc-runner"
    return {
        "name": "runner",
        "image": image,
        "command": [program, "--bundle", "/bundle", "--listen", listen],
        "ports": [{"name": "ring", "containerPort": runner.port, "hostPort": runner.port}],
        "resources": {
            "limits": {"memory": memory, **gpu},
            "requests": {"memory": str(min(runner.needed_bytes, runner.limit_bytes))},
        },
        "securityContext": confined(),
        "startupProbe": _probe(runner, periodSeconds=2, failureThreshold=150),
        "livenessProbe": _probe(runner, periodSeconds=10, failureThreshold=3),
        "volumeMounts": [
            {"name": "bundle", "mountPath": "/bundle", "readOnly": True},
            {"name": "keys", "mountPath": "/bundle/keys", "subPath": "keys", "readOnly": True},
        ],
    }


def _probe(runner: Runner, **times: int) -> Json:
    """That the port takes connections. Whether the runner gets on is for its ring to judge, which heals sooner."""
    return {"tcpSocket": {"port": runner.port}, "timeoutSeconds": 2, **times}


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice, without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(document: Json) -> str:
    text: str = yaml.dump(document, Dumper=_Plain, sort_keys=False, default_flow_style=False, width=110)
    return text
