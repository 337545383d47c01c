"""The recorded sessions of training of a run, for the trial of a rule of control."""

from collections.abc import Iterator

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.logged_partition import LoggedPartition
from seamlessflow.infra.blobs import largest_trajectory
from seamlessflow.infra.deadline import Stopping, never
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.export.exporting import recorded_weights
from seamlessflow.recorded.select.reading import Show, ended_sessions, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.recorded.stops.turns import TriedSession, recorded_turns
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import session_return
from seamlessflow.trainer.data.figures.evaluation import PASSED


def recorded_sessions(
    kafka: KafkaSettings, skipped: Skipped, show: Show, stopping: Stopping = never
) -> Iterator[TriedSession]:
    """Yield the ended sessions of training. Raises what `ended_sessions` raises."""
    everything = SessionSelection()
    weights = recorded_weights(kafka, skipped, stopping)
    bounds = partition_bounds(kafka, everything, stopping)
    total = sum(end - start for start, end in bounds.values())
    largest = largest_trajectory(kafka)
    for number, part in bounds.items():
        fold = Refold(LoggedPartition(number), everything)

        def count(events: int) -> None:
            show(events, total)

        for session in ended_sessions(kafka, fold, part, skipped, count, stopping):
            if session.opened.purpose == "train":
                made, _ = assembled(session, number, largest)
                returned = session_return(made, weights.get(made.policy, ONE_REWARD))
                passed = returned is not None and returned >= PASSED
                yield TriedSession(recorded_turns(session), passed)
