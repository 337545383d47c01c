"""A run on two nodes: two directories as two hosts, one Kafka, one gang across both."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.weights.versions import versions
from seamlessflow.schemas.records import RunFinished, StepCommitted, StepCompleted, WeightsLoaded
from seamlessflow.schemas.topics import CONTROL
from tests.e2e.runs.short_run import records_of, run_log, short_run

pytestmark = pytest.mark.slow

LIMIT_S = 240
STEPS = 6
AGENT = """
import httpx

async def run(task, session):
    sample = int(session.session_id.split(".")[1])
    async with httpx.AsyncClient(base_url=session.base_url, timeout=60) as client:
        answer = await client.post(
            "/chat/completions",
            headers={"authorization": f"Bearer {session.api_key}"},
            json={
                "model": session.model,
                "max_tokens": 8,
                "messages": [{"role": "user", "content": "go"}],
            },
        )
        answer.raise_for_status()
    return float(sample % 2)
"""


def own_address() -> str:
    """Return the address of this machine that others would use; skip where it has none."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only a route is looked up
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def _carry(one: socket.socket, other: socket.socket) -> None:
    # A node that is killed resets its connections.
    with one, other, suppress(ConnectionError):
        while True:
            for end in select.select([one, other], [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return
                (other if end is one else one).sendall(data)


@contextmanager
def reached_by_hosts(kafka: KafkaSettings, host: str) -> Iterator[KafkaSettings]:
    """Yield a Kafka on loopback at an address that is none, as hosts would name it."""
    to, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_server((host, 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    came, _ = listening.accept()
                except OSError:
                    return  # closed
                try:
                    ends = (came, socket.create_connection((to, int(port))))
                except OSError:
                    came.close()  # the broker has ended
                    continue
                threading.Thread(target=_carry, args=ends, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        address = f"{host}:{listening.getsockname()[1]}"
        yield kafka.model_copy(update={"bootstrap_servers": address})
        listening.shutdown(socket.SHUT_RDWR)


def two_nodes(directory: Path, kafka: KafkaSettings, host: str, backend: str) -> Path:
    """Write the configuration of a run whose gang is on both nodes."""
    config = short_run(directory, AGENT, STEPS, modelled=backend == "clock", kafka=kafka)
    values: dict[str, Any] = yaml.safe_load(config.read_text())
    tags = ["rollout", "train"]
    values |= {
        "workers": [{"id": name, "tags": tags, "node": name} for name in ("one", "two")],
        "gateway": {"secret": "a secret of this test alone"},
        "trainer": {
            **values["trainer"],
            "backend": backend,
            "ranks": 2,
            "host": host,
        },
    }
    config.write_text(yaml.safe_dump(values))
    return config


@contextmanager
def node(
    name: str, config: Path, inside: Sequence[str | Path] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a node in a directory of its own; kill it at the end if it goes on.

    `inside`: the program that starts it, with its arguments.
    """
    own = config.parent / f"host-{name}"
    own.mkdir(exist_ok=True)
    with (own / "log").open("ab") as log:
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
            cwd=own,
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
    host, own = own_address(), broker.model_copy(update={"topic_prefix": f"nodes-{backend}."})
    with reached_by_hosts(own, host) as kafka:
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
    assert {one.step for one in records if isinstance(one, StepCompleted)} >= set(range(1, STEPS))
    assert [one.steps for one in records if isinstance(one, RunFinished)] == [STEPS]


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
    host, own = own_address(), broker.model_copy(update={"topic_prefix": f"nodes-{way}."})
    inside, cache = hidden(tmp_path / "out" / "weights"), tmp_path / "host-two" / "cache"
    with reached_by_hosts(own, host) as kafka:
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
    loaded = [one for one in records if isinstance(one, WeightsLoaded) and one.worker == "two"]
    assert max(one.version for one in loaded) > 1
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
