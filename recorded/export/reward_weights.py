"""Weights of the rewards of a recorded run, by policy: what its trainer recorded on `control`.

`sessions` has the rewards of a session by their names; their weighted sum is the run's.
"""

from collections.abc import Iterable, Mapping

import orjson

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import LineageStarted, Record
from seamlessflow.schemas.topics import CONTROL
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import Weights


def recorded_weights(
    kafka: KafkaSettings, skipped: Skipped, stopping: Stopping
) -> Mapping[str, Weights]:
    """Return the weights of each policy that a trainer of the run trained.

    Raises what `read_topic` raises.
    """
    if kafka.topic_prefix + CONTROL.name not in partition_counts(kafka):
        return {}
    control = read_topic(kafka, CONTROL, skipped, stopping=stopping)
    return newest_weights(item.record for item in control)


def newest_weights(control: Iterable[Record]) -> dict[str, Weights]:
    """Return the weights of the newest lineage of each policy that records any."""
    newest: dict[str, Weights] = {}
    for record in control:
        if isinstance(record, LineageStarted):
            rewards = orjson.loads(record.settings).get("trainer", {}).get("rewards", {})
            weights = {name: float(weight) for name, weight in rewards.items() if weight}
            newest[record.policy] = weights or ONE_REWARD
    return newest
