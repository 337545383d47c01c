"""The embedded broker: a real Kafka that keeps its data, and says clearly why it does not start."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker, ReadyLimit
from seamlessflow.infra.broker.jars import class_path, default_cache, locked_jars
from seamlessflow.infra.broker.programs import SHORT_LIVED, JavaOptions
from seamlessflow.infra.broker.storage import properties
from seamlessflow.infra.errors import (
    BrokerFailed,
    ExitStatus,
    JarRejected,
    JarsUnavailable,
    SettingsRejected,
)
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import HOST, free_port, is_open
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import WorkerLost
from seamlessflow.schemas.topics import Topic
from tests.builders.records import control
from tests.paths import HARD_NAMES
from tests.waiting import until

TOPIC = Topic("lost", 1, 60_000, (WorkerLost,), max_record_bytes=16 * 1024 * 1024)
LOST = control.lost(reason="killed")


def write(settings: KafkaSettings, record: WorkerLost) -> None:
    create_topics(settings, [TOPIC])
    producer = Producer(settings, "writer")
    producer.send(TOPIC.name, record)
    producer.close()


def read(settings: KafkaSettings) -> WorkerLost:
    reader = Reader(settings, "reader")
    try:
        reader.assign({(TOPIC.name, 0): BEGINNING})
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for received in reader.poll(1):
                assert isinstance(received.record, WorkerLost)
                return received.record
        raise TimeoutError("nothing to read after 20 s")
    finally:
        reader.close()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def broker_over(directory: Path) -> int:
    """Return the Java process of the broker over a directory."""
    file = str(directory / "server.properties").encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if file in (process / "cmdline").read_bytes().split(b"\0"):
                return int(process.name)
    raise AssertionError(f"no broker over {directory}")


def test_a_record_is_read_back(kafka: KafkaSettings) -> None:
    write(kafka, LOST)
    assert read(kafka) == LOST


def test_a_record_of_many_megabytes_is_read_back(kafka: KafkaSettings) -> None:
    large = control.lost(reason="x" * 12_000_000)
    write(kafka, large)
    assert read(kafka) == large


def test_a_restarted_broker_has_its_data(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "kafka", java=SHORT_LIVED)
    with broker:
        write(broker.settings, LOST)
        first_pid = broker.pid
    assert broker.pid is None
    with broker:
        assert broker.pid != first_pid
        assert read(broker.settings) == LOST


def test_the_records_lie_in_the_directory_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("LC_ALL", "C")
    directory = tmp_path.joinpath(*HARD_NAMES, "kafka")
    broker = Broker(directory, java=SHORT_LIVED)
    with broker:
        write(broker.settings, LOST)
    with broker:
        assert read(broker.settings) == LOST
    assert (directory / "log" / f"{TOPIC.name}-0").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", HARD_NAMES[0]}
    assert not list(elsewhere.iterdir())


def test_a_directory_that_java_cannot_name_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"latin-\xfc")
    with pytest.raises(BrokerFailed, match="a byte of its name is no UTF-8, which Java needs"):
        Broker(directory).start()
    assert not directory.exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("a:b", "has a colon"), ("a\U0001f389b", "has '\U0001f389', which Java")]
)
def test_a_cache_that_java_cannot_name_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(SettingsRejected, match=rf"SEAMLESSFLOW_CACHE: .* {reason}"):
        Broker(tmp_path / "kafka", java=JavaOptions(cache=tmp_path / name)).start()
    assert not (tmp_path / name).exists()


def test_a_relative_cache_is_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(default_cache().absolute().parent)
    java = JavaOptions(short_lived=True, cache=Path(default_cache().name))
    with Broker(tmp_path, java=java) as broker:
        assert broker.running


def test_a_killed_broker_has_what_it_acknowledged(tmp_path: Path) -> None:
    with Broker(tmp_path, java=SHORT_LIVED) as broker:
        write(broker.settings, LOST)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        until(lambda: not broker.running, "its end", 10)
    with Broker(tmp_path, java=SHORT_LIVED) as broker:
        assert read(broker.settings) == LOST


def test_it_ends_when_the_process_that_runs_it_is_killed(tmp_path: Path) -> None:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "seamlessflow.infra.broker",
        f"--data={tmp_path}",
        f"--port={port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"Kafka answers at {HOST}:{port}\n"
        process.kill()
    until(lambda: not is_open(port), "its end", 20)


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux alone has it")
def test_it_interrupts_nobody_when_it_wakes(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        assert broker.pid is not None
        classes = set()
        for thread in Path(f"/proc/{broker.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # it ended meanwhile
                classes.add(os.sched_getscheduler(int(thread.name)))
        assert classes == {os.SCHED_BATCH}


def test_a_temporary_directory_is_gone_after_stop() -> None:
    with Broker(None, java=SHORT_LIVED) as broker:
        assert broker.data_dir.exists()
    assert not broker.data_dir.exists()


def test_everything_listens_on_loopback() -> None:
    for listener in str(properties(1, 2)["listeners"]).split(","):
        assert f"://{HOST}:" in listener


def test_a_second_broker_over_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Broker(tmp_path, java=SHORT_LIVED) as broker:
        with pytest.raises(BrokerFailed, match="another broker is running over this directory"):
            Broker(tmp_path, ready=ReadyLimit(0.2)).start()
        assert broker.running


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerFailed, match=f"port {port} is in use"):
            Broker(tmp_path, port).start()


def test_a_broker_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with Broker(tmp_path, java=SHORT_LIVED):
        pass
    (tmp_path / "log" / "meta.properties").write_text("version=1\nnode.id=7\n")
    with pytest.raises(BrokerFailed, match="it ended with exit status 1 while starting") as failure:
        Broker(tmp_path, java=SHORT_LIVED).start()
    assert "cluster.id was not found" in failure.value.log_tail


def test_a_broker_that_is_late_is_given_up(tmp_path: Path) -> None:
    broker = Broker(tmp_path, ready=ReadyLimit(0.05))
    with pytest.raises(BrokerFailed, match=r"not ready within 0\.05 s: try again") as late:
        broker.start()
    assert not broker.running
    assert late.value.process_status(ready=False) is ExitStatus.PASSING


def test_a_jar_that_differs_is_not_run(tmp_path: Path) -> None:
    class_path()
    shutil.copytree(default_cache() / "jars", tmp_path / "jars", copy_function=os.symlink)
    changed = tmp_path / "jars" / locked_jars()[0].path
    changed.unlink()
    changed.write_bytes(b"something else")
    with pytest.raises(JarRejected, match="delete the file to have it fetched again") as refusal:
        Broker(tmp_path / "data", java=JavaOptions(cache=tmp_path)).start()
    assert refusal.value.path == str(changed)


def test_jars_that_cannot_be_fetched_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "jgo.conf"
    config.write_text(f"[repositories]\ncentral = http://{HOST}:{free_port()}/maven2\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    with pytest.raises(JarsUnavailable, match=f"{len(locked_jars())} jars .* could not be fetched"):
        Broker(tmp_path / "data", java=JavaOptions(cache=tmp_path / "cache")).start()


def test_once_fetched_the_jars_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    before = class_path()
    monkeypatch.setenv("https_proxy", f"http://{HOST}:{free_port()}")
    assert class_path() == before


@pytest.mark.slow
def test_a_command_runs_three_brokers_that_outlive_one_of_them(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "seamlessflow.infra.broker",
        "--brokers=3",
        f"--data={tmp_path}",
    ]
    command.append(f"--port={free_port()}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            servers = process.stdout.readline().removeprefix("Kafka answers at ").strip()
            assert len(servers.split(",")) == 3
            settings = KafkaSettings(bootstrap_servers=servers)
            assert find_cluster(settings).brokers == 3
            os.kill(broker_over(tmp_path / "1"), signal.SIGKILL)
            assert process.stdout.readline() == "2 of 3 brokers run\n"
            write(settings, LOST)
            assert read(settings) == LOST
        finally:
            process.terminate()
            process.wait(60)
