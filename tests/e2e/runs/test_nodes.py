"""A run on two nodes: two directories as two hosts, one Kafka, one gang across both."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.weights.versions import versions
from seamlessflow.schemas.records import RunFinished, StepCommitted, StepCompleted, WeightsLoaded
from seamlessflow.schemas.topics import CONTROL
from tests.e2e.runs.short_run import records_of, run_log
from tests.e2e.runs.two_nodes import STEPS, own_address, reached_by_hosts, two_nodes

pytestmark = pytest.mark.slow

LIMIT_S = 240


@contextmanager
def node(
    name: str, config: Path, inside: Sequence[str | Path] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a node in a directory of its own; kill it at the end if it goes on.

    `inside`: the program that starts it, with its arguments.
    """
    directory = config.parent / f"host-{name}"
    directory.mkdir(exist_ok=True)
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                *inside,
                sys.executable,
                "-m",
                "seamlessflow",
                "node",
                "--config",
                config,
                "--name",
                name,
            ],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(config.parent), "COLUMNS": "200"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def vanish(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(LIMIT_S)


def ends(process: subprocess.Popen[bytes], config: Path) -> int:
    """Return the status of a node that ends; fail with all logs if it goes on."""
    try:
        return process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"a node goes on after {LIMIT_S} s{logs(config)}")


def logs(config: Path) -> str:
    return "".join(f"\n--- {file}\n{file.read_text()}" for file in config.parent.glob("host-*/log"))


@pytest.mark.parametrize("backend", [pytest.param("clock", marks=pytest.mark.soak), "fsdp2"])
def test_a_gang_on_two_nodes_ends_its_run_though_one_vanishes_and_comes_back(
    backend: str, broker: KafkaSettings, tmp_path: Path
) -> None:
    host, settings = own_address(), broker.model_copy(update={"topic_prefix": f"nodes-{backend}."})
    with reached_by_hosts(settings, host) as kafka:
        config = two_nodes(tmp_path, kafka, host, backend)
        with node("one", config) as first:
            with node("two", config) as second:
                log = run_log(kafka, tmp_path / "out", LIMIT_S)
                log.wait(StepCommitted)
                log.close()
                vanish(second)
            with node("two", config) as again:
                assert ends(first, config) == 0, logs(config)
                assert ends(again, config) == 0, logs(config)
        records = records_of(kafka, CONTROL)
    assert {record.step for record in records if isinstance(record, StepCompleted)} >= set(
        range(1, STEPS)
    )
    assert [record.steps for record in records if isinstance(record, RunFinished)] == [STEPS]


def hidden(directory: Path) -> list[str | Path]:
    """Return a program whose child finds that directory empty; skip where there is none."""
    cover = 'mount -t tmpfs none "$0" && exec "$@"'
    command: list[str | Path] = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    command += [cover, directory]
    directory.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no directory can be hidden from a process here: {error}")
    return command


@pytest.mark.parametrize("way", [pytest.param("storage", marks=pytest.mark.soak), "trainer"])
def test_a_node_that_does_not_see_the_weights_takes_them_from_the_storage_or_the_trainer(
    broker: KafkaSettings, tmp_path: Path, way: str
) -> None:
    host, settings = own_address(), broker.model_copy(update={"topic_prefix": f"nodes-{way}."})
    inside, cache = hidden(tmp_path / "out" / "weights"), tmp_path / "host-two" / "cache"
    with reached_by_hosts(settings, host) as kafka:
        config = two_nodes(tmp_path, kafka, host, "clock")
        values = yaml.safe_load(config.read_text())
        values["workers"][1]["tags"] = ["rollout"]
        values["trainer"]["ranks"] = 1
        url = (tmp_path / "store").as_uri()
        ways: dict[str, dict[str, object]] = {
            "storage": {"url": url, "anchor_every": 3},
            "trainer": {"from_trainer": "unseen"},
        }
        values["weights"] = {**ways[way], "cache_dir": str(cache)}
        config.write_text(yaml.safe_dump(values))
        with node("one", config) as first, node("two", config, inside) as second:
            assert first.wait(LIMIT_S) == 0, logs(config)
            assert second.wait(LIMIT_S) == 0, logs(config)
        records = records_of(kafka, CONTROL)
    loaded = [
        record for record in records if isinstance(record, WeightsLoaded) and record.worker == "two"
    ]
    assert max(record.version for record in loaded) > 1
    (policy,) = cache.iterdir()
    for version, directory in versions(policy).items():
        assert verify(directory).version == version
    assert (next(policy.glob("tokenizer-*")) / "tokenizer.json").is_file()


def test_a_node_that_no_entry_names_is_refused(broker: KafkaSettings, tmp_path: Path) -> None:
    kafka = broker.model_copy(update={"bootstrap_servers": "kafka.example:9092"})
    config = two_nodes(tmp_path, kafka, "one.example", "clock")
    with node("tow", config) as process:
        assert ends(process, config) == ExitStatus.LASTING
    assert "there is no node 'tow', but one, two" in logs(config)
