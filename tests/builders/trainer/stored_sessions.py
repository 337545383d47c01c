"""Pools whose sessions lie in memory, at the offsets of a list, as those of a topic would."""

from collections.abc import Sequence
from dataclasses import replace

from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.sessions import ValidSession
from seamlessflow.trainer.mixing.mixed_steps import MixerRules, Mixing
from seamlessflow.trainer.mixing.pools import Pool, PoolRules, StoredSession
from seamlessflow.trainer.mixing.stored import StoredRules, left_out, stored_group, stored_session
from seamlessflow.trainer.stored import OWN
from tests.builders.trainer.trajectories import one_turn

STORED_RULES = StoredRules("tiny", ONE_REWARD, None)


class MemoryTopics:
    """The trajectories of each pool, by offset; None for one that retention removed."""

    def __init__(self, **topics: list[Trajectory | None]) -> None:
        self.topics = topics
        self.reads = 0

    def update(self) -> None:
        """Nothing arrives: tests put groups into pools themselves."""

    def sessions(self, wanted: Sequence[tuple[str, StoredSession]]) -> dict[str, ValidSession]:
        self.reads += 1
        read = {}
        for pool, session in wanted:
            record = self.topics[pool][session.offset]
            if record is not None:
                made = stored_session(pool, record, STORED_RULES, 0, session.offset)
                assert isinstance(made, ValidSession)
                read[made.source.session_id] = made
        return read


def recording(*returns: Sequence[float], task: str = "t", **fields: object) -> list[Trajectory]:
    """Return the sessions of groups of another log, of version 7."""
    return [
        replace(one_turn(f"s{number}.{sample}", value, 7), group_id=f"s{number}", task_id=task)
        for number, values in enumerate(returns)
        for sample, value in enumerate(values)
    ]


def mixing(
    name: str, topics: MemoryTopics, rules: PoolRules | None = None, **arguments: object
) -> Mixing:
    """Return a mixer over these pools; all but the own one have what their topics have."""
    pools = {pool: Pool(pool, rules or PoolRules()) for pool in topics.topics}
    for pool, records in topics.topics.items():
        for offset, record in enumerate(records):
            if pool != OWN and record is not None and not left_out(record, STORED_RULES):
                pools[pool].put(stored_group(pool, record, STORED_RULES, 0, offset))
    return Mixing(MixerRules(name, arguments), pools, topics)
