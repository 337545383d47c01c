"""Manifests that are made of the example of 64 GPUs, with other settings, and their containers."""

import json
from collections.abc import Iterator
from typing import Any

from seamlessflow.config_file import parse, sections_of
from seamlessflow.kubernetes.manifests import manifests
from seamlessflow.kubernetes.objects import ClusterNames
from seamlessflow.producers.gateway.calls.keys import derived_admin_key
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "kubernetes"
IMAGE = "registry.example/seamlessflow:first"
OPTIONS = json.dumps({"security.protocol": "SASL_SSL", "sasl.password": "of kafka"})
SECRETS = {
    "gateway-secret": "a secret of sixteen letters",
    "admin-key": derived_admin_key("a secret of sixteen letters"),
    "kafka-options": OPTIONS,
}


def rendered(**values: Any) -> dict[str, list[dict[str, Any]]]:
    config = parse({**sections_of(EXAMPLE / "run.yaml"), **values})
    assert config.kafka is not None
    return manifests(config, config.kafka, "text: of the file\n", ClusterNames(IMAGE))


def objects(**values: Any) -> list[dict[str, Any]]:
    return [manifest for file in rendered(**values).values() for manifest in file]


def containers(**values: Any) -> Iterator[dict[str, Any]]:
    for manifest in objects(**values):
        if "template" in manifest.get("spec", {}):
            yield from manifest["spec"]["template"]["spec"]["containers"]


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container in a cluster whose Secret is `SECRETS`."""
    variables = {}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            variables[variable["name"]] = SECRETS[source["secretKeyRef"]["key"]]
        else:
            variables[variable["name"]] = variable.get("value", "10.0.0.7")
    return variables
