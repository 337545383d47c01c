"""Fixtures of all tests: a real Kafka, and a seed that the header prints.

The broker is the embedded one, or, if SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS is set, that one, or
with SEAMLESSFLOW_TEST_KAFKA=testcontainers one in Docker. A test that needs it is never skipped.
"""

import os
import random
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import hypothesis
import pytest
from xdist.remote import Producer

from seamlessflow.infra.broker.broker import Broker, ReadyLimit
from seamlessflow.infra.broker.programs import JavaOptions
from seamlessflow.infra.broker.storage import properties
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.network.addresses import HOST, free_port
from seamlessflow.infra.settings import KafkaSettings, ProcessSettings, load
from tests.builders.own_topics import own_topics
from tests.nightly import is_nightly
from tests.seed import seed
from tests.sharing import SharedByFile, readable

READY_TIMEOUT_S = 180
HEAP_MB = 1024
PATIENCE = {"broker.session.timeout.ms": 120_000}
"""No test kills this broker, and a machine that stalls for seconds must not have it fenced."""
# Images of containers often set it. Each of the many processes that tests start would then compile
# torch and all else that it imports, which is more than half of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Threads of torch wait for a core by spinning: where two processes share two cores, a test of small
# models then takes four times the processor's time. Read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
IMAGE = "apache/kafka:4.3.1"


def pytest_report_header() -> list[str]:
    """Return the kind of Kafka and the seed, with which a failure is repeated."""
    return [f"kafka: {_kind()}", f"seed: {seed} (SEAMLESSFLOW_TEST_SEED={seed} repeats it)"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SharedByFile:
    """Return the rule by which processes share the tests."""
    return SharedByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Return a report that can be sent to the process that prints it."""
    report = yield
    report.sections = readable(report.sections)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a broker, and those at night, so that `-m` can leave them out."""
    for item in items:
        if is_nightly(item.nodeid):
            item.add_marker(pytest.mark.nightly)
        if {"broker", "kafka"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Return the randomness of one test, which depends on the seed and no other test."""
    return random.Random(f"{seed} {request.node.nodeid}")


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaSettings]:
    """Yield the settings of the broker that all tests of this run share."""
    match _kind():
        case "external":
            settings = load(ProcessSettings).kafka
            find_cluster(settings, limit_s=READY_TIMEOUT_S)
            yield settings
        case "testcontainers":
            with _container() as settings:
                yield settings
        case "embedded":
            with Broker(
                None,
                java=JavaOptions(heap_mb=HEAP_MB, short_lived=True),
                ready=ReadyLimit(READY_TIMEOUT_S),
                properties=PATIENCE,
            ) as embedded:
                yield embedded.settings
        case other:
            pytest.exit(f"SEAMLESSFLOW_TEST_KAFKA={other}: embedded or testcontainers", 2)


@pytest.fixture
def kafka(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    """Yield the shared broker with topics, consumer groups and transactional ids of this test."""
    with own_topics(broker) as settings:
        yield settings


def _kind() -> str:
    if os.environ.get("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS"):
        return "external"
    return os.environ.get("SEAMLESSFLOW_TEST_KAFKA") or "embedded"


@contextmanager
def _container() -> Iterator[KafkaSettings]:
    """Yield a broker from Apache's image with the embedded broker's settings; needs Docker."""
    from testcontainers.core.container import DockerContainer

    port = free_port()
    values = properties(port, 9093)
    values["log.dirs"] = "/tmp/kafka"
    values["listeners"] = f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://{HOST}:9093"
    container = DockerContainer(IMAGE).with_bind_ports(port, port)
    for name, value in values.items():
        container = container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", str(value))
    with container:
        settings = KafkaSettings(bootstrap_servers=f"{HOST}:{port}")
        find_cluster(settings, limit_s=READY_TIMEOUT_S)
        yield settings
