"""A run's manifests, one file for each component, and their YAML. Pure.

Called by `seamlessflow render kubernetes`. The same configuration gives the same bytes. A Kafka for
the run consists of Strimzi's custom resources. Strimzi's operator makes the brokers, and the
Service that `kafka.bootstrap_servers` has to name.
"""

from collections.abc import Iterable

import yaml

from seamlessflow.config import RunConfig
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.kubernetes.nodes import NODE, node_job
from seamlessflow.kubernetes.objects import APP, ClusterNames, KubernetesObject, manifest, selector
from seamlessflow.kubernetes.services import PORT, agents, gateways
from seamlessflow.processes.specs import AGENTS, GATEWAY

CONFIG_FILE = "run.yaml"
_SHARED_GIB = 2048

_BROKERS = 3
_DISK_GIB = 500
_PORT = 9092
_VERSION = "kafka.strimzi.io/v1"


class _PlainDumper(yaml.SafeDumper):
    """Writer for YAML without anchors, which writes texts with several lines as such."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: what stands twice is written twice."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_PlainDumper.add_representer(str, _text)


def manifests(
    config: RunConfig, kafka: KafkaSettings, text: str, names: ClusterNames
) -> dict[str, list[KubernetesObject]]:
    """Return the objects by file name. `text` is the configuration's YAML."""
    spoken_to = [{"from": [_pods(AGENTS)], "ports": [{"port": PORT}]}]
    # A gang's ranks listen on free ports, which the others read in `fleet`.
    among = [{"from": [_pods(NODE)]}]
    nodes = {f"node-{name}": [node_job(config, name, CONFIG_FILE, names)] for name in config.nodes}
    return {
        "config": [manifest("ConfigMap", "v1", APP, "config", data={CONFIG_FILE: text})],
        "storage": [_claim(names)],
        GATEWAY: [
            *gateways(config, kafka, names),
            _budget(GATEWAY, maxUnavailable=1),
            _policy(GATEWAY, spoken_to),
        ],
        **({} if config.opened_outside else _agents(config, kafka, names)),
        # A budget for Jobs takes a number of pods, not a share: all of them stay.
        "nodes": [_budget(NODE, minAvailable=len(config.nodes)), _policy(NODE, among)],
        **nodes,
    }


def as_yaml(objects: Iterable[KubernetesObject]) -> str:
    """Return the objects as YAML documents, their parts in the order in which they were made."""
    return yaml.dump_all(
        objects, Dumper=_PlainDumper, sort_keys=False, explicit_start=True, width=1_000_000
    )


def bootstrap_address(name: str) -> str:
    """Return the address at which Strimzi's Service for a cluster answers."""
    return f"{name}-kafka-bootstrap:{_PORT}"


def kafka_cluster(name: str) -> list[KubernetesObject]:
    """Return three brokers that are also controllers; each record is on two of them at least.

    The run creates the topics itself, so there is no topic operator.
    """
    volume = {
        "id": 0,
        "type": "persistent-claim",
        "size": f"{_DISK_GIB}Gi",
        "kraftMetadata": "shared",
        "deleteClaim": False,
    }
    pool = {
        "replicas": _BROKERS,
        "roles": ["controller", "broker"],
        "storage": {"type": "jbod", "volumes": [volume]},
    }
    brokers = {
        "listeners": [{"name": "plain", "port": _PORT, "type": "internal", "tls": False}],
        "config": {
            "auto.create.topics.enable": False,
            "default.replication.factor": _BROKERS,
            "min.insync.replicas": _BROKERS - 1,
            "offsets.topic.replication.factor": _BROKERS,
            "transaction.state.log.replication.factor": _BROKERS,
            "transaction.state.log.min.isr": _BROKERS - 1,
        },
    }
    return [
        {
            "apiVersion": _VERSION,
            "kind": "KafkaNodePool",
            "metadata": {"name": f"{name}-brokers", "labels": {"strimzi.io/cluster": name}},
            "spec": pool,
        },
        {
            "apiVersion": _VERSION,
            "kind": "Kafka",
            "metadata": {"name": name},
            "spec": {"kafka": brokers},
        },
    ]


def _agents(
    config: RunConfig, kafka: KafkaSettings, names: ClusterNames
) -> dict[str, list[KubernetesObject]]:
    budget = _budget(AGENTS, maxUnavailable=1)
    return {AGENTS: [*agents(config, kafka, names), budget, _policy(AGENTS, [])]}


def _claim(names: ClusterNames) -> KubernetesObject:
    asked = {"requests": {"storage": f"{_SHARED_GIB}Gi"}}
    spec = {"accessModes": ["ReadWriteMany"], "resources": asked}
    return manifest("PersistentVolumeClaim", "v1", names.claim, "storage", spec=spec)


def _budget(component: str, **limit: int) -> KubernetesObject:
    spec = {**limit, "selector": selector(component)}
    name = f"{APP}-{component}"
    return manifest("PodDisruptionBudget", "policy/v1", name, component, spec=spec)


def _policy(component: str, ingress: list[KubernetesObject]) -> KubernetesObject:
    spec = {"podSelector": selector(component), "policyTypes": ["Ingress"], "ingress": ingress}
    name = f"{APP}-{component}"
    return manifest("NetworkPolicy", "networking.k8s.io/v1", name, component, spec=spec)


def _pods(component: str) -> KubernetesObject:
    return {"podSelector": selector(component)}
