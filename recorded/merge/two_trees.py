"""One session merged by the recorded rules and by others, side by side."""

from seamlessflow.consumers.trajectories.sessions.logged_partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.deadline import Stopping, never
from seamlessflow.infra.kafka.unreadable import Unreadable
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.rewriting import rewriting
from seamlessflow.recorded.merge.rules import RECORDED, MergeRules
from seamlessflow.recorded.select.bounds import partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.topics import SESSIONS


def two_sessions(
    settings: KafkaSettings, session_id: str, rules: MergeRules, stopping: Stopping = never
) -> tuple[Session, Session] | None:
    """Return a session by the recorded rules and by `rules`; None if it did not end.

    Of several with one name the first. Raises what `read_partitions` raises.
    """
    chosen = SessionSelection(sessions=frozenset([session_id]))
    ((number, (start, end)),) = partition_bounds(settings, chosen, stopping).items()
    place = SESSIONS.name, number
    folds = [
        Refold(LoggedPartition(number), chosen, rewriting(variant)) for variant in (RECORDED, rules)
    ]
    for item in read_partitions(
        settings, [place], starts={place: start}, ends={place: end}, folds=True, stopping=stopping
    ):
        if isinstance(item.record, Unreadable):
            continue
        first, other = (fold.apply(item.record, item.offset) for fold in folds)
        if first is not None and other is not None:
            return first, other
    return None
