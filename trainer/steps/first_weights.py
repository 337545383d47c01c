"""The weights that are current when a trainer starts: version 0 of a new run, or the newest."""

from dataclasses import dataclass, replace
from pathlib import Path

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.weights.versions import versions
from seamlessflow.schemas.records import LineageStarted
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key
from seamlessflow.trainer.backends.backend import Backend
from seamlessflow.trainer.recovery.control_state import ControlState, Published
from seamlessflow.trainer.recovery.resume import Resume
from seamlessflow.trainer.steps.publication import Publication


class WeightsDirectoryInUse(SeamlessFlowError):
    """A new run whose weights directory, or storage, holds versions of another run."""

    lasting = True

    def __init__(self, directory: str, setting: str = "trainer.weights_dir (or data_dir)") -> None:
        self.directory = directory
        super().__init__(
            f"{directory} holds weights of another run: set {setting} to another directory"
        )


@dataclass(frozen=True, slots=True)
class FirstWeights:
    """The weights that are current when the process begins."""

    published: Published
    new: bool
    """True if they must still be announced on `control`."""
    resume: Resume


def first_weights(
    publication: Publication,
    root: Path,
    control_state: ControlState,
    resume: Resume,
    backend: Backend,
) -> FirstWeights:
    """Return the weights to roll out with; write them if they are missing.

    A new run writes version 0. A resumed run keeps the current version; if its directory is gone,
    it writes the weights in memory under a new number. Raise `WeightsDirectoryInUse`.
    """
    current, origin = control_state.published, resume.origin
    if current is None and max(versions(root), default=0) > 0:
        raise WeightsDirectoryInUse(str(root))
    if current is None and (url := publication.sent_before()):
        raise WeightsDirectoryInUse(url, "weights.url")
    publication.prepare()
    if current is not None and Path(current.directory).is_dir():
        publication.send(Path(current.directory))
        return FirstWeights(current, False, resume)
    number = 0 if current is None else resume.next_version
    published = publication.write(backend, number, origin.step, resume.lineage)
    control_state.steps_of[number] = origin.step
    return FirstWeights(published, True, replace(resume, next_version=number + 1))


def announce(
    first: FirstWeights,
    publication: Publication,
    producer: Producer,
    at_ms: int,
    lineage: LineageStarted | None,
    stopping: Stopping,
) -> None:
    """Announce the weights on `fleet`, and on `control` if they are new; wait for Kafka.

    Before them the lineage, unless it is None.
    """
    if lineage is not None:
        producer.send(CONTROL.name, lineage)
    if first.new:
        name = first.resume.lineage
        producer.send(CONTROL.name, publication.announcement(first.published, name, at_ms))
    weights = publication.policy_weights(first.published, at_ms)
    producer.send(FLEET.name, weights, key=fleet_key(weights))
    producer.settle(stopping)
