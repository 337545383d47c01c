"""The broker that leads the partition of a streaming turn goes: two others have all of it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.recorded.audit.audit import audit
from tests.faults.replicated_system import ReplicatedSystem, replicated_system
from tests.faults.tally import Tally
from tests.waiting import until

Inject = Callable[[Broker], Callable[[], object]]
pytestmark = [pytest.mark.kafka, pytest.mark.slow]
BACK_S = 60
AGAIN = 20


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedSystem]:
    with replicated_system(tmp_path_factory.mktemp("replicated")) as made:
        yield made


def kill(leader: Broker) -> Callable[[], object]:
    """Kill the broker; return a function that starts it again."""
    os.kill(pid_of(leader), signal.SIGKILL)
    until(lambda: not leader.running, "the broker's end")
    return leader.start


def freeze(leader: Broker) -> Callable[[], object]:
    """Freeze the broker; return a function that thaws it."""
    os.kill(pid_of(leader), signal.SIGSTOP)
    return lambda: os.kill(pid_of(leader), signal.SIGCONT)


def pid_of(broker: Broker) -> int:
    assert broker.pid is not None
    return broker.pid


def lead_elsewhere(system: ReplicatedSystem, fault: Inject) -> float:
    """Inject the fault into the leader in mid-stream, and end its session before it is mended.

    Returns the seconds from the fault to the session's trajectory.
    """
    with ThreadPoolExecutor(1) as calls:
        session, text = system.begin(calls)
        leader = system.leader()
        began_s = time.monotonic()
        mend = fault(leader)
        try:
            system.end(session, text)
            took_s = time.monotonic() - began_s
            assert system.leader() is not leader
        finally:
            mend()
    until(lambda: system.in_sync() == len(system.cluster.brokers), "all copies", BACK_S)
    report = audit(system.system.kafka)
    assert report.clean, report.violations
    assert report.result("sessions").checked == len(system.finished)
    return took_s


@pytest.mark.parametrize("fault", [kill, freeze])
def test_a_turn_goes_on_although_the_leader_of_its_partition_goes_in_mid_stream(
    system: ReplicatedSystem, fault: Inject
) -> None:
    lead_elsewhere(system, fault)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [kill, freeze])
def test_leaders_go_one_after_the_other(
    system: ReplicatedSystem, fault: Inject, say: Callable[[str], None]
) -> None:
    tally = Tally()
    for _ in range(AGAIN):
        tally.add(f"{fault.__name__} leader", lead_elsewhere(system, fault))
        say(tally.lines()[0])
