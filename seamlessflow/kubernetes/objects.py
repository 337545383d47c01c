"""Kubernetes objects that all components share: names, labels, pods. Pure.

An object is what its YAML says: a mapping of plain values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.infra.network.storages import local_path

KubernetesObject = dict[str, Any]
"""A Kubernetes object, or a part."""

APP = "seamlessflow"
CONFIG_DIR = "/etc/seamlessflow"
_USER = 1000
GRACE_S = 60
"""Seconds that a pod's processes get beyond their own limits when it ends."""


@dataclass(frozen=True)
class ClusterNames:
    """Names of what the cluster has: the image, the Secret and the shared volume's claim."""

    image: str
    secret: str = APP
    claim: str = APP


def labels(component: str, node: str = "") -> dict[str, str]:
    """Return a component's labels; `node` adds the label for one node's pod."""
    common = {"app.kubernetes.io/name": APP, "app.kubernetes.io/component": component}
    return common | ({"seamlessflow/node": node} if node else {})


def manifest(kind: str, version: str, name: str, component: str, **parts: Any) -> KubernetesObject:
    """Return an object with its name and labels, before its other parts."""
    metadata = {"name": name, "labels": labels(component)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def selector(component: str) -> KubernetesObject:
    """Return what finds a component's pods."""
    return {"matchLabels": labels(component)}


def from_secret(
    variable: str, names: ClusterNames, key: str, optional: bool = False
) -> KubernetesObject:
    """Return a variable with the value that stands in the Secret under `key`."""
    reference: KubernetesObject = {"name": names.secret, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}


def storage(names: ClusterNames, *urls: str | None) -> KubernetesObject:
    """Return a container's Secret with the storage library's variables; empty if not needed.

    Only a URL that is no local path needs it.
    """
    if all(not url or local_path(url) is not None for url in urls):
        return {}
    return {"envFrom": [{"secretRef": {"name": f"{names.secret}-storage", "optional": True}}]}


def values(variables: Mapping[str, str]) -> list[KubernetesObject]:
    """Return variables with their values, by name."""
    return [{"name": name, "value": text} for name, text in sorted(variables.items())]


def container(
    name: str, names: ClusterNames, command: Sequence[str], mount: Path, **parts: Any
) -> KubernetesObject:
    """Return a container without rights; `mount` is where it has the shared volume."""
    return {
        "name": name,
        "image": names.image,
        "command": list(command),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
            {"name": "shared", "mountPath": str(mount)},
            # Ranks of one gang exchange tensors there; the 64 MiB of a container are too few.
            {"name": "memory", "mountPath": "/dev/shm"},  # nosec B108
        ],
        **parts,
    }


def pod(
    component: str, names: ClusterNames, inside: KubernetesObject, node: str = "", **parts: Any
) -> Any:
    """Return a pod template with one container, as a user that is not root."""
    return {
        "metadata": {"labels": labels(component, node)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                # Else each start of a pod sets the owner of all the volume's files anew.
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **parts,
            "containers": [inside],
            "volumes": [
                {"name": "config", "configMap": {"name": APP}},
                {"name": "shared", "persistentVolumeClaim": {"claimName": names.claim}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
            ],
        },
    }
