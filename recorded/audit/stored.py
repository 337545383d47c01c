"""Stored sessions that steps trained (`trainer.replay`): their names and their sampled tokens.

A session in another log's pool has the name `POOL/ID`. Its tokens are on that log's trajectories.
Called by both checks of tokens.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.sampled_tokens import FOREIGN, SampledSession, recorded_session
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import TRAJECTORIES

OWN = "own"
ELSEWHERE = -2
"""Version that a trained token from another log has."""
ANY_AGE = 10**9
"""Steps for which a session may be trained again if its pool names no limit."""


def pool_prefixes(started: r.LineageStarted) -> dict[str, str]:
    """Return the prefix of each pool that is from another log."""
    pools = _replay(started).get("pools", {})
    return {name: pool["prefix"] for name, pool in pools.items() if pool.get("prefix") is not None}


def steps_of_own(started: r.LineageStarted) -> int:
    """Return how many steps later the run's own groups may be trained again; 0 for never."""
    pool = _replay(started).get("pools", {}).get(OWN)
    if pool is None or not _replay(started).get("name"):
        return 0
    return int(pool.get("max_staleness") or ANY_AGE)


def stored_names(step: r.StepCommitted) -> frozenset[str]:
    """Return the sessions that a step took from pools."""
    of_groups = (name for group in step.groups if group.pool for name in group.sessions)
    replacing = (each.by for group in step.groups for each in group.replaced)
    return frozenset((*of_groups, *replacing))


def elsewhere(step: r.StepCommitted) -> frozenset[str]:
    """Return the sessions that a step took from other logs."""
    of_groups = (
        name for group in step.groups if group.pool not in ("", OWN) for name in group.sessions
    )
    replacing = (each.by for group in step.groups for each in group.replaced if each.pool != OWN)
    return frozenset((*of_groups, *replacing))


def stored_sessions(
    kafka: KafkaSettings,
    prefixes: Mapping[str, str],
    names: Collection[str],
    skipped: Skipped,
    stopping: Stopping,
) -> Iterator[tuple[str, SampledSession]]:
    """Yield the sessions named `POOL/ID`, as far as their pools' topics have them.

    Raises what `read_topic` raises.
    """
    for pool, prefix in prefixes.items():
        wanted = {name for name in names if name.startswith(f"{pool}/")}
        settings = kafka.model_copy(update={"topic_prefix": prefix})
        if not wanted or prefix + TRAJECTORIES.name not in partition_counts(settings):
            continue
        for item in read_topic(settings, TRAJECTORIES, skipped, stopping=stopping):
            record = item.record
            if isinstance(record, r.Trajectory) and f"{pool}/{record.session_id}" in wanted:
                yield f"{pool}/{record.session_id}", sampled_session(record)


def all_prefixes(control: Iterable[r.Record]) -> dict[str, str]:
    """Return the prefixes of all pools that lineages on `control` name."""
    prefixes: dict[str, str] = {}
    for record in control:
        if isinstance(record, r.LineageStarted):
            prefixes |= pool_prefixes(record)
    return prefixes


def sampled_session(record: r.Trajectory) -> SampledSession:
    """Return a session's completions. Log-probs are NaN if another sampler reported none."""
    session = recorded_session(record)
    foreign = any(node.origin == FOREIGN for node in record.nodes)
    if foreign and record.metadata.get("logprobs") == "none":
        for turn in session.turns.values():
            turn.logprobs = bytearray(np.full(turn.length, np.nan, "<f4").tobytes())
    return session


def _replay(started: r.LineageStarted) -> dict[str, Any]:
    settings: dict[str, Any] = orjson.loads(started.settings)
    replay: dict[str, Any] = settings["trainer"].get("replay", {})
    return replay
