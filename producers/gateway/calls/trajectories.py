"""A session's trajectory for its owner: as it stands, or as it was finalized.

The manager answers for a session that it still has in memory. It forgets a session that is
finalized. Then this module reads the record from `trajectories`, from about the session's end on.
Nothing is kept.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import orjson

from seamlessflow.infra.clock import Stopping, now_ms
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.producers.gateway.calls.chains import trained_chains
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import Exchange
from seamlessflow.producers.gateway.link import Link
from seamlessflow.producers.gateway.server_span import served
from seamlessflow.producers.gateway.settings import GatewaySection
from seamlessflow.schemas.codec import UndecodableRecord, decode
from seamlessflow.schemas.records import CommandAnswered, DescribeSession, Trajectory
from seamlessflow.schemas.topics import TRAJECTORIES

_CLOCKS_DIFFER_MS = 60_000
"""Room for clocks that differ, between the managers and the broker."""
_COMMITTED_AFTER_MS = 60_000
"""Longest time from a session's end to its trajectory's record."""
_AGAIN_S = 0.2
_ASK_S = 5.0


class Trajectories:
    """The handler for `GET /sessions/{id}/chains`."""

    def __init__(self, link: Link, settings: GatewaySection, tracing: Telemetry) -> None:
        self._link = link
        self._settings = settings
        self._tracing = tracing

    async def chains(self, exchange: Exchange, session_id: str) -> None:
        """Answer with the session's state and its chains. Raises `ApiError`."""
        with served(self._tracing, exchange, session_id) as span:
            fields = self._link.command_fields(session_id, self._settings.command_expiry_s)
            question = DescribeSession(**fields, wants_trajectory=True)
            answered = await self._link.ask(question, span.headers)
            if not isinstance(answered, CommandAnswered) or answered.state is None:
                raise ApiError(500, "the manager gave no description")
            state = orjson.loads(answered.state)
            made = await self._trajectory(state, answered.trajectory)
            # In a thread: a session may have a million tokens.
            await exchange.answer(200, await asyncio.to_thread(_body, state, made))

    async def _trajectory(self, state: Mapping[str, Any], standing: bytes | None) -> Trajectory:
        if standing is not None:
            return _decoded(standing)
        if state["status"] != "finalized":
            detail = "the manager is of a release that gives no trajectory"
            raise ApiError(501, detail, code="upgrade_under_way")
        at_ms = state.get("finalized_at_ms")
        if at_ms is None:
            detail = "it is finalized, and the manager has forgotten when: `seamlessflow export`"
            raise ApiError(404, detail, code="session_forgotten")
        deadline = time.monotonic() + self._settings.command_timeout_s
        while True:
            if (made := await self._on_log(state, deadline)) is not None:
                return made
            if now_ms() - at_ms > _COMMITTED_AFTER_MS:
                raise ApiError(404, "its trajectory is not on the log", code="trajectory_gone")
            if time.monotonic() > deadline:
                detail = "its trajectory is not committed yet"
                raise ApiError(503, detail, code="trajectory_not_committed")
            await asyncio.sleep(_AGAIN_S)

    async def _on_log(self, state: Mapping[str, Any], deadline: float) -> Trajectory | None:
        try:
            return await asyncio.to_thread(
                finalized_trajectory,
                self._link.kafka,
                state["group_id"],
                state["session_id"],
                state["finalized_at_ms"] - _CLOCKS_DIFFER_MS,
                lambda: time.monotonic() > deadline,
            )
        except KafkaUnavailable as error:
            raise ApiError(503, str(error), code="kafka_unavailable") from error


def finalized_trajectory(
    kafka: KafkaSettings, group_id: str, session_id: str, since_ms: int, stopping: Stopping
) -> Trajectory | None:
    """Return a session's trajectory from its group's partition, or None if it is not there.

    Reads records that are not older than `since_ms`, until it has the session's. Raises
    `KafkaUnavailable`, also once `stopping`.
    """
    with closing(BoundsLookup(kafka)) as lookup:
        places = lookup.partitions(TRAJECTORIES.name, _ASK_S)
        if not places:
            return None
        place = sorted(places)[partition_of(group_id, len(places))]
        starts = lookup.since([place], since_ms, _ASK_S)
    if place not in starts:
        return None
    for item in read_partitions(kafka, [place], starts=starts, stopping=stopping):
        if isinstance(item.record, Trajectory) and item.record.session_id == session_id:
            return item.record
    return None


def _decoded(standing: bytes) -> Trajectory:
    try:
        made = decode(standing)
    except UndecodableRecord as error:
        raise ApiError(501, str(error), code="upgrade_under_way") from error
    if not isinstance(made, Trajectory):
        raise ApiError(500, "the manager sent no trajectory")
    return made


def _body(state: Mapping[str, Any], made: Trajectory) -> bytes:
    if made.reason.startswith("too_large") and not made.tokens:
        raise ApiError(413, "its tokens are too many for an answer", code="session_too_large")
    rewards = [
        {"name": reward.name, "value": reward.value, "turn": reward.turn_id}
        for reward in made.rewards
    ]
    return orjson.dumps(
        {
            **state,
            "policy": made.policy,
            "task_id": made.task_id,
            "tokenizer_hash": made.tokenizer_hash,
            "rewards": rewards,
            "chains": trained_chains(made),
        }
    )
