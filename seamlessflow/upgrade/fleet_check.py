"""Check of the processes on a cluster before a pin is removed: reads `fleet` and the groups."""

from dataclasses import dataclass

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.start.members import client_ids
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import ProcessSettings
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.topics import FLEET
from seamlessflow.upgrade.running import RunningProcess, older, running, verdict

_ANSWER_S = 10.0


class FleetSettings(ProcessSettings):
    """The cluster, and the Kafka consumer groups of managers and agents."""

    manager: ManagerSection = ManagerSection()
    agents: AgentsSection = AgentsSection()


@dataclass(frozen=True, slots=True)
class FleetCheck:
    """Result of the check."""

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
    """Return what is known of the processes now. Raises `KafkaUnavailable` and `KafkaRefused`."""
    find_cluster(settings.kafka, limit_s=_ANSWER_S)
    skipped = Skipped()
    fleet = [item.record for item in read_topic(settings.kafka, FLEET, skipped)]
    managers = client_ids(settings.kafka, settings.manager.group)
    agents = len(client_ids(settings.kafka, settings.agents.group))
    notices = skipped.notices
    if agents:
        unseen = f"{agents} agents processes do not say their release: upgrade them too"
        notices = [*notices, unseen]
    return FleetCheck(running(fleet, managers, now_ms()), notices)
