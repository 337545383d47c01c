"""Processes that run on a cluster, with their releases, before an upgrade's pin is removed.

`fleet` names most of them; consumer groups show which managers and agents run. Only `check_fleet`
reads Kafka.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra import clock
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.start.members import client_ids
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import ProcessSettings
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.releases import order, this_release
from seamlessflow.schemas.topics import FLEET

SILENT_MS = 30_000
"""Age at which a heartbeat or snapshot shows that its process is gone."""
_UNNAMED = "older than 0.1.0"
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that runs; `release` is empty before 0.1.0, the first release that reports it."""

    name: str
    release: str

    def __str__(self) -> str:
        return f"{self.name}: {self.release or _UNNAMED}"


def running(fleet: Iterable[Record], managers: Sequence[str], now_ms: int) -> list[RunningProcess]:
    """Return the running processes, sorted by name, from all records of `fleet` in order.

    `managers` are the client ids in the managers' group: a manager reports only its start. Agents
    processes report nothing.
    """
    processes: dict[str, RunningProcess | None] = {}
    for record in fleet:
        match record:
            case r.GatewayHeartbeat():
                name = f"gateway {record.gateway}"
            case r.WorkerHeartbeat():
                name = f"{record.process} process of {record.worker}"
            case r.SchedulerSnapshot():
                name = "scheduler"
            case r.ManagerStarted():
                name = f"manager {record.manager}"
            case _:
                continue
        if isinstance(record, r.ManagerStarted):
            lives = any(manager.startswith(f"{record.manager}-") for manager in managers)
        else:
            lives = now_ms - record.at_ms < SILENT_MS
        processes[name] = RunningProcess(name, record.release) if lives else None
    return sorted(filter(None, processes.values()), key=lambda process: process.name)


def older(processes: Iterable[RunningProcess], release: str) -> list[RunningProcess]:
    """Return the processes that cannot read all records of a release."""
    return [process for process in processes if order(process.release) < order(release)]


def verdict(processes: Sequence[RunningProcess], release: str) -> str:
    """Return the sentence about unpinning a release's records."""
    if not processes:
        return f"no process has reported on fleet within {SILENT_MS // 1000} s"
    if late := older(processes, release):
        names = ", ".join(process.name for process in late)
        return (
            f"{len(late)} of {len(processes)} processes cannot read release {release} yet: "
            f"{names}; keep SEAMLESSFLOW_KAFKA__WRITE_RELEASE at their release"
        )
    return (
        f"{len(processes)} of {len(processes)} processes read release {release}: "
        "SEAMLESSFLOW_KAFKA__WRITE_RELEASE can be unset"
    )


class FleetSettings(ProcessSettings):
    """The cluster, and the Kafka consumer groups of managers and agents."""

    manager: ManagerSection = ManagerSection()
    agents: AgentsSection = AgentsSection()


@dataclass(frozen=True, slots=True)
class FleetCheck:
    """The check's result."""

    processes: list[RunningProcess]
    notices: list[str]
    """Sentences about records that could not be read, and processes that are not seen."""

    @property
    def passed(self) -> bool:
        """True if there are processes and all of them read this release."""
        return bool(self.processes) and not older(self.processes, this_release().version)

    @property
    def verdict(self) -> str:
        """Sentence about the pin."""
        return verdict(self.processes, this_release().version)


def check_fleet(settings: FleetSettings) -> FleetCheck:
    """Return what the processes report now. Raises `KafkaUnavailable` and `KafkaRefused`."""
    find_cluster(settings.kafka, limit_s=_ANSWER_S)
    skipped = Skipped()
    fleet = [item.record for item in read_topic(settings.kafka, FLEET, skipped)]
    managers = client_ids(settings.kafka, settings.manager.group)
    agents = len(client_ids(settings.kafka, settings.agents.group))
    notices = skipped.notices
    if agents:
        unseen = f"{agents} agents processes do not say their release: upgrade them too"
        notices = [*notices, unseen]
    return FleetCheck(running(fleet, managers, clock.now_ms()), notices)
