"""Reading of a recorded run: the records that rates and workload follow from."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from infra.kafka.unreadable import Skipped
from infra.kafka.whole_topic import read_topic
from schemas import records as r
from schemas.records import Record
from schemas.topics import CONTROL, FLEET, REQUESTS, SESSIONS, TRAJECTORIES, Topic
from seamlessflow.calibration.sections import Recorded
from seamlessflow.calibration.sessions import recorded_session
from seamlessflow.calibration.turns import recorded_turns
from seamlessflow.processes.cluster import kafka_to_audit


def read_run(out: Path | None, skipped: Skipped) -> Recorded:
    """Return the run in `out`, or on the Kafka of SEAMLESSFLOW_KAFKA__*, live or ended.

    Raises `NoRunData`, and what `read_topic` raises.
    """
    with kafka_to_audit(out) as kafka:

        def records(topic: Topic) -> Iterator[Record]:
            return (item.record for item in read_topic(kafka, topic, skipped))

        trajectories = (of for of in records(TRAJECTORIES) if isinstance(of, r.Trajectory))
        sessions = (recorded_session(of) for of in trajectories)
        return Recorded(
            control=list(records(CONTROL)),
            turns=recorded_turns(records(SESSIONS), records(REQUESTS)),
            sessions=[one for one in sessions if one is not None],
            rows=_rows(records(FLEET)),
        )


def _rows(fleet: Iterable[Record]) -> int | None:
    """Return the most turns that an engine samples at once, by the heartbeats."""
    capacities = [
        one.capacity
        for one in fleet
        if isinstance(one, r.WorkerHeartbeat) and one.process == "rollout" and one.capacity
    ]
    return max(capacities, default=None)
