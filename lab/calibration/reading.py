"""Reading of a recorded run: the records that rates and workload follow from."""

from collections.abc import Iterable, Iterator

import orjson

from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.lab.calibration.sections import Recorded
from seamlessflow.lab.calibration.sessions import recorded_session
from seamlessflow.lab.calibration.turns import recorded_turns
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, REQUESTS, SESSIONS, TRAJECTORIES, Topic
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import Weights


def read_run(kafka: KafkaSettings, skipped: Skipped) -> Recorded:
    """Return the run on these topics, live or ended. Raises what `read_topic` raises."""

    def records(topic: Topic) -> Iterator[Record]:
        return (item.record for item in read_topic(kafka, topic, skipped))

    control = list(records(CONTROL))
    weights = recorded_weights(control)
    trajectories = (item for item in records(TRAJECTORIES) if isinstance(item, r.Trajectory))
    sessions = (recorded_session(trajectory, weights) for trajectory in trajectories)
    return Recorded(
        control=control,
        turns=recorded_turns(records(SESSIONS), records(REQUESTS)),
        sessions=[session for session in sessions if session is not None],
        rows=_rows(records(FLEET)),
    )


def recorded_weights(control: Iterable[Record]) -> Weights:
    """Return the weights of named rewards of the newest lineage; those by default of older logs."""
    lineages = [record for record in control if isinstance(record, r.LineageStarted)]
    settings = orjson.loads(lineages[-1].settings) if lineages else {}
    rewards: Weights = settings.get("trainer", {}).get("rewards", ONE_REWARD)
    return {name: weight for name, weight in rewards.items() if weight}


def _rows(fleet: Iterable[Record]) -> int | None:
    """Return the most turns that an engine samples at once, by the heartbeats."""
    capacities = [
        record.capacity
        for record in fleet
        if isinstance(record, r.WorkerHeartbeat) and record.process == "rollout" and record.capacity
    ]
    return max(capacities, default=None)
