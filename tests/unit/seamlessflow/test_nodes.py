"""Nodes of a run: their names, and what keeps several of them from meeting."""

from typing import Any

import pytest

from seamlessflow.config_file import as_written, parse
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.nodes import elsewhere_faults, name_faults, node_name, spread_faults
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs

WORKERS = [
    {"id": "a", "tags": ["rollout", "train"], "node": "one"},
    {"id": "b", "tags": ["rollout", "train"], "node": "two"},
]
MANY: dict[str, Any] = {
    "out": "/shared/run",
    "workers": WORKERS,
    "agents": {"callable": "my.agent:run"},
    "kafka": {"bootstrap_servers": "kafka.example:9092"},
    "gateway": {"secret": "a secret of sixteen letters"},
    "trainer": {"backend": "fsdp2", "ranks": 2, "host": "one.example"},
}


def spread(**values: Any) -> list[str]:
    return [fault.line(as_written) for fault in spread_faults(parse({**MANY, **values}))]


def names(here: str, **values: Any) -> list[str]:
    """Return the names of the processes of workers on a node."""
    config = parse({**MANY, **values})
    context = LaunchContext(KafkaSettings(), 1, {}, node=here, head=config.head)
    made = ProcessSpecs(config, context)
    return [spec.name for spec in (*made.rollouts(), *made.trainers())]


def test_each_node_has_the_processes_of_its_workers_and_the_first_rank_the_trainer() -> None:
    assert names("one") == ["rollout-a", "trainer", "trainer-a"]
    assert names("two") == ["rollout-b", "trainer-b"]


def test_a_rank_counts_over_the_workers_of_all_nodes() -> None:
    config = parse(MANY)
    context = LaunchContext(KafkaSettings(), 1, {}, node="two", head=config.head)
    [training] = ProcessSpecs(config, context).trainers()
    assert '"rank": 1' in training.environment["SEAMLESSFLOW_TRAINER"]


def test_a_worker_without_a_node_is_on_the_first_one() -> None:
    assert parse(MANY).head == "one"
    assert names("three", node="three", workers=[{"id": "c"}, *WORKERS]) == ["rollout-c"]


def test_further_policies_share_the_first_node_of_the_run() -> None:
    workers = [*WORKERS, {"id": "c", "tags": ["train"], "policy": "other", "node": "two"}]
    values = {"workers": workers, "policies": {"other": {}}}
    assert names("two", **values) == ["rollout-b", "trainer-b", "trainer.other", "trainer-c"]


def test_a_run_of_one_node_needs_none_of_what_several_need() -> None:
    assert list(spread_faults(parse({}))) == []
    assert list(elsewhere_faults(parse({}))) == []


def test_nodes_that_can_meet_have_no_fault() -> None:
    assert spread() == []


def test_several_nodes_need_a_kafka_that_all_reach() -> None:
    [line] = spread(kafka=None)
    assert line.startswith("kafka: an embedded Kafka answers on its own node alone")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
def test_a_loopback_address_is_refused_where_other_nodes_must_reach_it(host: str) -> None:
    address = f"{host}:9092"
    [line] = spread(kafka={"bootstrap_servers": f"kafka.example:9092,{address}"})
    assert line.startswith(f"kafka.bootstrap_servers: {address} is this host for each node")
    [line] = spread(trainer={**MANY["trainer"], "host": host.strip("[]")})
    assert line.startswith(f"trainer.host: {host.strip('[]')} is this host for each node")


def test_weights_in_the_memory_of_one_process_are_refused() -> None:
    [line] = spread(weights={"url": "memory://run"})
    assert line.startswith("weights.url: memory://run is the memory of one process")
    assert spread(weights={"url": "s3://bucket/run"}) == []


def test_a_gang_on_one_node_may_meet_at_loopback() -> None:
    workers = [{**WORKERS[0], "devices": [0, 1]}, {"id": "r", "node": "two"}]
    assert spread(workers=workers, trainer={"backend": "fsdp2", "ranks": 2}) == []


def test_an_invented_secret_and_a_relative_directory_are_refused() -> None:
    [secret] = spread(gateway={"port": 8800})
    assert secret.startswith("gateway.secret: is not set, and each node would choose another")
    [out] = spread(out="run")
    assert out.startswith("out: run is relative")


def test_a_name_that_no_entry_has_is_refused_with_those_that_are_there() -> None:
    [fault] = name_faults(parse(MANY), "tow")
    assert "there is no node 'tow', but one, two" in fault.text
    assert list(name_faults(parse(MANY), "two")) == []
    [fault] = name_faults(parse({}), "two")
    assert "set workers[].node" in fault.text


def test_a_command_for_one_machine_refuses_several_nodes() -> None:
    [fault] = elsewhere_faults(parse(MANY))
    assert "start `seamlessflow node` on each" in fault.text


def test_the_name_is_as_asked_or_that_of_slurm_or_the_hosts() -> None:
    slurm = {"SLURMD_NODENAME": "n7"}
    assert node_name("two", slurm, "host") == "two"
    assert node_name(None, slurm, "host") == "n7"
    assert node_name(None, {}, "host") == "host"
