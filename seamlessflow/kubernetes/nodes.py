"""A run's nodes as Jobs, one pod each. Pure.

A pod runs `seamlessflow node`, which starts its workers' processes and ends with the run. It
restarts processes that end, or that give no sign of life. The pod asks for its workers' GPUs.
"""

from collections.abc import Iterable

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.kubernetes.objects import (
    APP,
    CONFIG_DIR,
    GRACE_S,
    ClusterNames,
    KubernetesObject,
    container,
    from_secret,
    manifest,
    pod,
    storage,
)
from seamlessflow.kubernetes.services import KAFKA_OPTIONS

NODE = "node"
_CORES = 4
_MEMORY_GIB = 16
_DEVICE_CORES, _DEVICE_MEMORY_GIB = 8, 96
"""Requests that a pod makes for itself, and for each GPU."""
_DRAIN_S = 60
_EVICTED = {"type": "DisruptionTarget", "status": "True"}
_RETRIES = 1000
"""Pods that a Job may lose; the run's own restarts are limited by `restarts`."""


def node_job(config: RunConfig, name: str, file: str, names: ClusterNames) -> KubernetesObject:
    """Return a node's Job, whose configuration is `file` in the ConfigMap."""
    inside = _container(config, name, file, names)
    grace = round(config.agents.drain_s) + _DRAIN_S + GRACE_S
    template = pod(
        NODE,
        names,
        inside,
        name,
        restartPolicy="Never",
        terminationGracePeriodSeconds=grace,
    )
    return manifest(
        "Job",
        "batch/v1",
        f"{APP}-{NODE}-{name}",
        NODE,
        spec={
            "backoffLimit": _RETRIES,
            # Never two pods of one node: a new one begins when the old one has ended.
            "podReplacementPolicy": "Failed",
            # A wrong setting, or a run with nothing to train, is not mended by another start.
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"operator": "In", "values": [ExitStatus.LASTING.value]},
                    },
                    {"action": "Ignore", "onPodConditions": [_EVICTED]},
                ]
            },
            "template": template,
        },
    )


def device_numbers(worker: WorkerSection) -> tuple[int, ...]:
    """Return a worker's GPU numbers, which its two processes share; empty with cpu."""
    kind, _, number = (worker.device or "").partition(":")
    if kind != "cuda":
        return ()
    return worker.devices or (int(number or 0),)


def device_count(workers: Iterable[WorkerSection]) -> int:
    """Return how many GPUs all these workers have, each GPU once."""
    return len({number for worker in workers for number in device_numbers(worker)})


def _container(config: RunConfig, name: str, file: str, names: ClusterNames) -> KubernetesObject:
    """Return a node's container, with its workers' GPUs."""
    count = device_count(config.nodes[name])
    requests = {
        "cpu": str(_CORES + _DEVICE_CORES * count),
        "memory": f"{_MEMORY_GIB + _DEVICE_MEMORY_GIB * count}Gi",
    }
    gpus = {"nvidia.com/gpu": str(count)} if count else {}
    command = ["seamlessflow", "node", "--config", f"{CONFIG_DIR}/{file}", "--name", name]
    own_address = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return container(
        NODE,
        names,
        command,
        config.out.parent,
        env=[
            {"name": "SEAMLESSFLOW_TRAINER__HOST", **own_address},
            from_secret("SEAMLESSFLOW_GATEWAY__SECRET", names, "gateway-secret"),
            from_secret("SEAMLESSFLOW_GATEWAY__ADMIN_KEY", names, "admin-key"),
            from_secret(KAFKA_OPTIONS[0], names, KAFKA_OPTIONS[1], optional=True),
        ],
        resources={"requests": {**requests, **gpus}, "limits": gpus},
        **storage(names, config.weights.url, config.kafka.blobs if config.kafka else None),
    )
