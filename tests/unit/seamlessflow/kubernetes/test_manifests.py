"""Manifests of a run on Kubernetes: all of them valid, and all that they name is real."""

import importlib.util
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import typer
import yaml
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.config_file import as_written, load, parse, sections_of
from seamlessflow.kubernetes.faults import cluster_faults
from seamlessflow.kubernetes.manifests import as_yaml, kafka_cluster, manifests
from seamlessflow.kubernetes.objects import ClusterNames
from seamlessflow.producers.gateway.calls.keys import derived_admin_key
from tests.integration.runbooks.commands import blocks
from tests.unit.seamlessflow.kubernetes.rendered_example import (
    EXAMPLE,
    IMAGE,
    containers,
    environment,
    objects,
    rendered,
)

SCHEMAS = Path(__file__).parent / "schemas"


def lines(**values: Any) -> list[str]:
    config = parse({**sections_of(EXAMPLE / "run.yaml"), **values})
    return [fault.line(as_written) for fault in cluster_faults(config)]


def named(kind: str, name: str) -> dict[str, Any]:
    [manifest] = [o for o in objects() if o["kind"] == kind and o["metadata"]["name"] == name]
    return manifest


def commands() -> list[str]:
    """Return all commands of the example's page."""
    page = (EXAMPLE / "README.md").read_text()
    return [command.text for block in blocks(page) for command in block.commands]


def by_its_readme(example: Path) -> Path:
    """Render the example by the command of its page; return the directory of the manifests."""
    [command] = [line for line in commands() if " render " in line]
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    return example / "manifests"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the example, which is the working directory."""
    copy = tmp_path / "kubernetes"
    shutil.copytree(EXAMPLE, copy)
    monkeypatch.chdir(copy)
    return copy


EVERY = [*objects(), *kafka_cluster("kafka")]


def validate(manifest: dict[str, Any]) -> None:
    """Raise if Kubernetes, or the API of the object's kind, refuses the object."""
    if (schema := SCHEMAS / f"{manifest['kind']}.json").exists():
        jsonschema.validate(manifest, json.loads(schema.read_text()))
    else:
        kubernetes_validate.validate(manifest, "1.31", strict=True)


@pytest.mark.parametrize("manifest", EVERY, ids=lambda o: f"{o['kind']}/{o['metadata']['name']}")
def test_every_object_is_valid(manifest: dict[str, Any]) -> None:
    validate(manifest)


def test_a_wrong_field_is_noticed() -> None:
    job = named("Job", "seamlessflow-node-host-a")
    job["spec"]["backofLimit"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.31", strict=True)


def test_the_command_of_the_example_makes_valid_manifests(example: Path) -> None:
    files = {path.name: path.read_text() for path in by_its_readme(example).iterdir()}

    nodes = {f"node-host-{letter}.yaml" for letter in "abcdefgh"}
    others = {"agents", "config", "gateway", "kafka", "nodes", "storage"}
    assert set(files) == nodes | {f"{name}.yaml" for name in others}
    for text in files.values():
        for manifest in yaml.safe_load_all(text):
            validate(manifest)
    assert yaml.safe_load(files["config.yaml"])["data"] == {
        "run.yaml": (EXAMPLE / "run.yaml").read_text()
    }


def test_the_example_is_rendered_to_the_same_bytes(example: Path) -> None:
    first = {path.name: path.read_text() for path in by_its_readme(example).iterdir()}
    assert {path.name: path.read_text() for path in by_its_readme(example).iterdir()} == first


def test_the_secret_of_the_example_has_all_keys_that_its_pods_need() -> None:
    [command] = [line for line in commands() if line.startswith("kubectl create secret")]
    needed = {
        key["key"]
        for container in containers()
        for variable in container["env"]
        if (key := variable.get("valueFrom", {}).get("secretKeyRef")) and not key.get("optional")
    }
    assert set(re.findall(r"--from-literal=([\w-]+)=", command)) == needed


def test_yaml_reads_as_the_objects_that_were_made() -> None:
    assert list(yaml.safe_load_all(as_yaml(objects()))) == objects()


def test_no_secret_is_written() -> None:
    config = parse(sections_of(EXAMPLE / "run.yaml"))
    assert config.kafka is not None
    secret = config.gateway.secret.get_secret_value()
    made = manifests(config, config.kafka, "", ClusterNames(IMAGE))
    text = "".join(as_yaml(file) for file in made.values())
    assert "invented." not in text
    assert derived_admin_key(secret) not in text


def test_every_command_exists() -> None:
    for container in containers():
        program, *arguments = container["command"]
        if program == "python":
            *options, module = arguments
            assert options == ["-P", "-m"]
            assert importlib.util.find_spec(f"{module}.__main__") is not None
        else:
            command = typer.main.get_group(app).commands[arguments[0]]
            options = {option for parameter in command.params for option in parameter.opts}
            assert {argument for argument in arguments if argument.startswith("--")} <= options


def test_a_node_reads_the_file_and_every_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    [node] = [container for container in containers() if container["command"][-1] == "host-b"]
    for name, text in environment(node).items():
        monkeypatch.setenv(name, text)
    config = load(EXAMPLE / "run.yaml")
    assert config.trainer.host == "10.0.0.7"
    assert not config.secret_invented
    assert config.gateway.admin_key is not None
    assert config.kafka is not None
    assert config.kafka.bootstrap_servers == "kafka-kafka-bootstrap:9092"
    assert str(config.kafka.options["security.protocol"]) == "SASL_SSL"


def test_a_pod_has_the_devices_of_its_node_once() -> None:
    workers = [
        {"id": "a", "node": "one", "device": "cuda:0", "tags": ["rollout", "train"]},
        {"id": "b", "node": "one", "device": "cuda:1"},
        {"id": "c", "node": "two", "device": "cpu"},
    ]
    files = rendered(workers=workers, trainer={"ranks": 1})
    limits = {
        name: files[f"node-{name}"][0]["spec"]["template"]["spec"]["containers"][0]["resources"]
        for name in ("one", "two")
    }
    assert limits["one"]["limits"] == {"nvidia.com/gpu": "2"}
    assert limits["two"]["limits"] == {}


def test_a_pod_is_not_root() -> None:
    for manifest in objects():
        if "template" in manifest.get("spec", {}):
            context = manifest["spec"]["template"]["spec"]["securityContext"]
            assert context["runAsNonRoot"] is True
            assert context["fsGroupChangePolicy"] == "OnRootMismatch", "a volume may be large"


def test_selectors_find_the_pods_of_their_component() -> None:
    pods = [
        o["spec"]["template"]["metadata"]["labels"]
        for o in objects()
        if "template" in o.get("spec", {})
    ]
    for manifest in objects():
        for wanted in selectors(manifest.get("spec", {})):
            assert any(wanted.items() <= labels.items() for labels in pods), manifest["metadata"]


def selectors(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, dict):
        if "matchLabels" in value:
            yield value["matchLabels"]
        for inner in value.values():
            yield from selectors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from selectors(inner)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"kafka": None}, "kafka: an embedded Kafka answers in its own pod alone"),
        (
            {"kafka": {"bootstrap_servers": "127.0.0.1:9092"}},
            "kafka.bootstrap_servers: 127.0.0.1:9092 is each pod itself",
        ),
        (
            {"kafka": {"bootstrap_servers": "k:9092, [::1]:9092"}},
            "kafka.bootstrap_servers: [::1]:9092 is each pod itself",
        ),
        ({"weights": {"url": "memory://run"}}, "weights.url: memory://run is the memory of one"),
        ({"out": "runs"}, "out: runs: name a directory within the shared volume"),
        ({"out": "/dev/shm/run"}, "out: /dev/shm/run: the shared volume would be mounted over"),
        ({"out": "/opt/run"}, "out: /opt/run: the shared volume would be mounted over"),
        ({"gateway": {"secret": "one of sixteen letters"}}, "gateway.secret: is a secret"),
        (
            {"kafka": {"bootstrap_servers": "k:9092", "options": {"sasl.password": "p"}}},
            "kafka.options.sasl.password: is a secret",
        ),
        ({"workers": [{"id": "a", "device": "cpu"}]}, "workers: no worker is of a node"),
        ({"workers": [{"id": "a", "node": "A_b", "device": "cpu"}]}, "node: 'A_b' is no name"),
        ({"workers": [{"id": "a", "node": "a"}]}, "workers[0].device: is not named"),
        (
            {"workers": [{"id": "a", "node": "a", "device": "cuda:1"}]},
            "workers: of the node a have the devices [1]",
        ),
    ],
)
def test_what_no_cluster_can_run_is_refused(values: dict[str, Any], text: str) -> None:
    assert [line[: len(text)] for line in lines(**values)] == [text]


def test_the_example_has_no_fault() -> None:
    assert lines() == []


def test_a_file_of_a_node_that_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node-gone.yaml").write_text("")
    arguments = ["render", "kubernetes", "--config", str(EXAMPLE / "run.yaml"), "--image", IMAGE]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["node-gone.yaml"]


def test_a_variable_of_the_shell_is_not_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_RUN__STEPS", "3")
    arguments = ["render", "kubernetes", "--config", str(EXAMPLE / "run.yaml"), "--image", IMAGE]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "status"), [("kafka", 0), ("other", 2)])
def test_a_kafka_of_strimzi_is_the_one_of_the_file(name: str, status: int, tmp_path: Path) -> None:
    arguments = ["render", "kubernetes", "--config", str(EXAMPLE / "run.yaml"), "--image", IMAGE]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path), "--strimzi", name])
    assert result.exit_code == status
    assert (tmp_path / "kafka.yaml").exists() == (status == 0)
