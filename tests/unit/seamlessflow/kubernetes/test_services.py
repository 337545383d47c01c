"""Gateways and agents on Kubernetes: their variables, secrets and limits."""

import json
from typing import Any

import kubernetes_validate
import pytest
from pydantic import BaseModel

from seamlessflow.infra.settings import ENV_PREFIX, ProcessSettings
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.gateway.settings import GatewaySettings
from seamlessflow.schemas.topics import TASKS
from tests.unit.seamlessflow.kubernetes.rendered_example import (
    SECRETS,
    containers,
    environment,
    rendered,
)

SETTINGS: dict[str, type[ProcessSettings]] = {
    "seamlessflow.producers.gateway": GatewaySettings,
    "seamlessflow.producers.agents": AgentsSettings,
}


@pytest.mark.parametrize("component", ["gateway", "agents"])
def test_a_process_reads_every_variable(component: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [process] = [container for container in containers() if container["name"] == component]
    settings = SETTINGS[process["command"][-1]]
    variables = environment(process)
    assert [name for name in variables if not exists(settings, name)] == []
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    read = settings()
    assert read.kafka.bootstrap_servers == "kafka-kafka-bootstrap:9092"
    assert str(read.kafka.options["security.protocol"]) == "SASL_SSL"


def exists(settings: type[BaseModel], variable: str) -> bool:
    """Return True if the settings have the field of a variable."""
    for part in variable.removeprefix(ENV_PREFIX).lower().split("__"):
        if part not in settings.model_fields:
            return False
        kind = settings.model_fields[part].annotation
        settings = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else BaseModel
    return True


def test_the_agents_have_the_key_of_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    [agents] = [container for container in containers() if container["name"] == "agents"]
    for name, text in environment(agents).items():
        monkeypatch.setenv(name, text)
    read = AgentsSettings()
    assert read.agents.admin_key.get_secret_value() == SECRETS["admin-key"]
    assert read.agents.gateway_url == "http://seamlessflow-gateway:8800"


@pytest.mark.parametrize(
    ("values", "those"),
    [
        ({}, set()),
        ({"weights": {"url": "file:///shared/weights"}}, set()),
        ({"weights": {"url": "s3://bucket/run"}}, {"node"}),
        (
            {"kafka": {"bootstrap_servers": "k:9092", "blobs": "gs://b/c"}},
            {"node", "gateway", "agents"},
        ),
    ],
)
def test_who_uses_a_storage_has_the_variables_of_its_secret(
    values: dict[str, Any], those: set[str]
) -> None:
    secret = [{"secretRef": {"name": "seamlessflow-storage", "optional": True}}]
    holders = {
        container["name"]
        for container in containers(**values)
        if container.get("envFrom") == secret
    }
    assert holders == those
    for job in rendered(**values)["node-host-a"]:
        kubernetes_validate.validate(job, "1.31", strict=True)


def test_a_gateway_takes_calls_until_the_service_knows_that_it_leaves() -> None:
    for asked_s, given_s in ((0, 15), (40, 40)):
        [deployment, *_] = rendered(gateway={"leave_s": asked_s})["gateway"]
        inside = deployment["spec"]["template"]["spec"]
        [container] = inside["containers"]
        settings = next(
            variable for variable in container["env"] if variable["name"] == "SEAMLESSFLOW_GATEWAY"
        )
        assert json.loads(settings["value"])["leave_s"] == given_s
        assert inside["terminationGracePeriodSeconds"] > given_s + 30


def test_agents_are_scaled_by_the_lag_of_their_group() -> None:
    prefixed = rendered(
        kafka={"bootstrap_servers": "k:9092", "topic_prefix": "own."},
        agents={"callable": "my.agent:run", "group": "players", "concurrency": 7},
    )
    [scaling] = [manifest for manifest in prefixed["agents"] if manifest["kind"] == "ScaledObject"]
    trigger = scaling["spec"]["triggers"][0]["metadata"]
    assert (trigger["topic"], trigger["consumerGroup"]) == ("own.tasks", "own.players")
    assert trigger["lagThreshold"] == "7"
    assert scaling["spec"]["maxReplicaCount"] == TASKS.partitions - 1
