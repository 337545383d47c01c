"""Kafka away for a minute and for ten, under load (I8): bounded memory, refusals, all goes on."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from seamlessflow.processes.usage import peak_rss_mb
from seamlessflow.producers.gateway.calls.keys import derived_admin_key
from tests import http
from tests.faults.driver import Driver
from tests.faults.faults import BROKER, Kind
from tests.faults.faulty_run import FaultyRun, faulty_run
from tests.faults.outages.clients import REFUSED, Answers, Clients

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
CLIENTS = 16
GROWTH_MB = 100
"""Most memory that a process may gain in an outage, whatever its length."""
REFUSAL_S = 10.0
"""Twice `gateway.kafka_timeout_s`, after which a call may not wait for Kafka."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyRun]:
    with faulty_run(tmp_path_factory.mktemp("outage"), broker_returns=False) as made:
        yield made


@pytest.fixture(scope="module")
def driver(run: FaultyRun, say: Callable[[str], None]) -> Iterator[Driver]:
    driver = Driver(run, say)
    driver.start()
    yield driver
    driver.finish()


def memory_mb(run: FaultyRun) -> Mapping[str, float]:
    """Return the largest memory of each process so far."""
    pids = {name: run.pid(name) for name in run.launcher.running}
    return {name: peak_rss_mb(pid) for name, pid in pids.items() if pid is not None}


def opened(run: FaultyRun, name: str) -> str:
    """Open a session that is not trained; return its key."""
    secret = run.config.gateway.secret.get_secret_value()
    headers = {"authorization": f"Bearer {derived_admin_key(secret)}"}
    body = {"session_id": name, "policy": "policy", "purpose": "eval"}
    answer = http.post(f"{run.urls[0]}/sessions", json=body, headers=headers, timeout=30)
    key: str = answer.raise_for_status().json()["api_key"]
    return key


def go_away(run: FaultyRun, kind: Kind) -> int:
    pid = run.pid(BROKER)
    assert pid is not None
    os.kill(pid, signal.SIGKILL if kind is Kind.KILL else signal.SIGSTOP)
    return pid


def come_back(run: FaultyRun, kind: Kind, pid: int) -> None:
    if kind is Kind.KILL:
        run.start_broker()
    else:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("kind", "length_s"),
    [(Kind.KILL, 60), (Kind.FREEZE, 60), (Kind.KILL, 600)],
    ids=["killed-a-minute", "frozen-a-minute", "killed-ten-minutes"],
)
def test_an_outage_under_load_is_waited_out_by_all(
    run: FaultyRun, driver: Driver, say: Callable[[str], None], kind: Kind, length_s: float
) -> None:
    keys = [opened(run, f"{kind.name}-{length_s}-{n}") for n in range(CLIENTS)]
    with Clients(run.urls, keys) as clients:
        driver.await_well()
        before, ended = memory_mb(run), len(run.ended)
        pid = go_away(run, kind)
        began_s = time.monotonic()
        try:
            clients.answers = away = Answers()
            run.until(lambda: time.monotonic() > began_s + length_s, "the time", length_s + 60)
        finally:
            come_back(run, kind, pid)
        clients.answers = after = Answers()
        back_s = time.monotonic()
        driver.await_well()
        run.until(lambda: after.statuses["200"] > CLIENTS, "answers", 60)
        healthy_s = time.monotonic() - back_s
    grown = {name: mb - before[name] for name, mb in memory_mb(run).items()}
    say(f"{kind} for {length_s} s: well {healthy_s:.1f} s after it; away: {away}; after: {after}")
    say(", ".join(f"{name} {before[name]:.0f} + {mb:.0f} MiB" for name, mb in grown.items()))
    say(f"ended: {run.ended[ended:]}; refusals that are wrong: {away.wrong[:3]}")
    driver.audit()
    assert away.wrong == [] and after.wrong == []
    assert run.ended[ended:] == []
    refused = [kind for kind in away.statuses if kind.startswith(tuple(map(str, REFUSED)))]
    assert refused and max(away.longest_s[status] for status in refused) < REFUSAL_S
    assert max(grown.values()) < GROWTH_MB
