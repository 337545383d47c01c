"""Gateways and agents, which Kubernetes scales beside a run's nodes. Pure.

Each runs a process that the first node also starts, with the same settings except addresses.
Secrets are never in the settings, and come from the Secret.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from seamlessflow.config import RunConfig
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.kubernetes.objects import (
    APP,
    GRACE_S,
    ClusterNames,
    KubernetesObject,
    container,
    from_secret,
    manifest,
    pod,
    selector,
    storage,
    values,
)
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.specs import AGENTS, GATEWAY, LaunchContext, ProcessSpecs
from seamlessflow.schemas.topics import TASKS

PORT = 8800
URL = f"http://{APP}-{GATEWAY}:{PORT}"
_GATEWAYS = 2
_PROBE_S = 5
_LEAVE_S = 3.0 * _PROBE_S
"""Seconds in which the Service notices that a gateway leaves, at least."""
_SECRETS = ("secret", "admin_key", "api_keys")
KAFKA_OPTIONS = ("SEAMLESSFLOW_KAFKA__OPTIONS", "kafka-options")


def gateways(
    config: RunConfig, kafka: KafkaSettings, names: ClusterNames
) -> list[KubernetesObject]:
    """Return the gateways' Deployment, and the Service at which agents find them."""
    spec = ProcessSpecs(config, LaunchContext(kafka, PORT, {})).gateway()
    leave_s = max(config.gateway.leave_s, _LEAVE_S)
    section = {"host": "0.0.0.0", "public_url": URL, "leave_s": leave_s}  # nosec B104
    secret = [
        from_secret("SEAMLESSFLOW_GATEWAY__SECRET", names, "gateway-secret"),
        from_secret("SEAMLESSFLOW_GATEWAY__ADMIN_KEY", names, "admin-key"),
    ]
    inside = container(
        GATEWAY,
        names,
        ["python", "-P", "-m", spec.module],
        config.out.parent,
        env=[*_environment(spec, kafka, gateway=section), *secret, *_kafka_options(names)],
        ports=[{"name": "http", "containerPort": PORT}],
        livenessProbe={**_probe("/health"), "periodSeconds": 10, "failureThreshold": 6},
        readinessProbe={**_probe("/ready"), "periodSeconds": _PROBE_S},
        # Waits for Kafka as long as the process does itself.
        startupProbe={
            **_probe("/health"),
            "periodSeconds": 5,
            "failureThreshold": max(1, round(kafka.wait_s / 5)) + 6,
        },
        resources=_resources("1", "1Gi"),
        **storage(names, kafka.blobs),
    )
    own_s = leave_s + config.gateway.shutdown_timeout_s
    name = f"{APP}-{GATEWAY}"
    return [
        _deployment(GATEWAY, _GATEWAYS, pod(GATEWAY, names, inside, **_grace(own_s))),
        manifest(
            "Service",
            "v1",
            name,
            GATEWAY,
            spec={
                "selector": selector(GATEWAY)["matchLabels"],
                "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
            },
        ),
    ]


def agents(config: RunConfig, kafka: KafkaSettings, names: ClusterNames) -> list[KubernetesObject]:
    """Return the Deployment for further agents processes, and what scales it by their lag.

    One process takes `agents.concurrency` tasks. Processes beyond the topic's partitions get none,
    and the first node has its own process.
    """
    spec = ProcessSpecs(config, LaunchContext(kafka, PORT, {})).agents()
    key = from_secret("SEAMLESSFLOW_AGENTS__ADMIN_KEY", names, "admin-key")
    environment = _environment(spec, kafka, agents={"gateway_url": URL})
    inside = container(
        AGENTS,
        names,
        ["python", "-P", "-m", spec.module],
        config.out.parent,
        env=[*environment, key, *_kafka_options(names)],
        resources=_resources("1", "2Gi"),
        **storage(names, kafka.blobs),
    )
    template = pod(AGENTS, names, inside, **_grace(spec.stop_s))
    trigger = {
        "bootstrapServers": kafka.bootstrap_servers,
        "consumerGroup": f"{kafka.topic_prefix}{config.agents.group}",
        "topic": f"{kafka.topic_prefix}{TASKS.name}",
        "lagThreshold": str(config.agents.concurrency),
        "offsetResetPolicy": "earliest",
    }
    scaling = {
        "scaleTargetRef": {"name": f"{APP}-{AGENTS}"},
        "minReplicaCount": 0,
        "maxReplicaCount": TASKS.partitions - 1,
        "triggers": [{"type": "kafka", "metadata": trigger}],
    }
    return [
        _deployment(AGENTS, None, template),
        manifest("ScaledObject", "keda.sh/v1alpha1", f"{APP}-{AGENTS}", AGENTS, spec=scaling),
    ]


def _environment(
    spec: ChildSpec, kafka: KafkaSettings, **changed: Mapping[str, Any]
) -> list[KubernetesObject]:
    """Return a process's variables without secrets, and with changed settings."""
    environment = dict(spec.environment)
    for section, settings in changed.items():
        name = f"SEAMLESSFLOW_{section.upper()}"
        read = json.loads(environment[name])
        kept = {key: value for key, value in read.items() if key not in _SECRETS}
        environment[name] = json.dumps({**kept, **settings}, sort_keys=True)
    shown = {k: v for k, v in kafka.options.items() if not isinstance(v, SecretStr)}
    address = {**kafka.model_dump(exclude_defaults=True), "options": shown}
    environment["SEAMLESSFLOW_KAFKA"] = json.dumps(address, sort_keys=True)
    return values(environment)


def _kafka_options(names: ClusterNames) -> Sequence[KubernetesObject]:
    return [from_secret(KAFKA_OPTIONS[0], names, KAFKA_OPTIONS[1], optional=True)]


def _probe(path: str) -> KubernetesObject:
    return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5}


def _grace(own_s: float) -> KubernetesObject:
    return {"terminationGracePeriodSeconds": round(own_s) + GRACE_S}


def _resources(cores: str, memory: str) -> KubernetesObject:
    return {"requests": {"cpu": cores, "memory": memory}, "limits": {"memory": memory}}


def _deployment(
    component: str, replicas: int | None, template: KubernetesObject
) -> KubernetesObject:
    count = {} if replicas is None else {"replicas": replicas}
    spec = {**count, "selector": selector(component), "template": template}
    return manifest("Deployment", "apps/v1", f"{APP}-{component}", component, spec=spec)
