"""Surroundings of a manager's decision: a fleet, a renderer and the context of both."""

from typing import Any

from seamlessflow.consumers.trajectories.decisions.context import Context
from seamlessflow.consumers.trajectories.decisions.fleet import RolloutFleet
from seamlessflow.consumers.trajectories.matching.match import RequestMessages
from seamlessflow.schemas.records import PolicyWeights, Record, RoleAcquired, Sampling
from tests.builders.records import control, fleet
from tests.builders.records.content import ids


class OneTokenAMessage:
    """A renderer that makes one token of a message; decisions do not look at the tokens."""

    stop_token_ids = (0,)

    def encode(self, text: str) -> bytes:
        return ids(*text.encode())

    def decode(self, ids: bytes) -> str:
        return bytes(ids[::4]).decode()

    def render(self, messages: RequestMessages, tools: RequestMessages | None = None) -> bytes:
        return ids(*range(1, len(messages) + 1))

    def forced_call(
        self,
        prompt: bytes,
        messages: RequestMessages,
        tools: RequestMessages | None,
        name: str | None,
    ) -> bytes:
        return ids(70, 71 if name else 72)

    def tail(self, prompt: bytes) -> bytes:
        return prompt

    def bridge(
        self,
        prompt: bytes,
        completion: bytes,
        new: RequestMessages,
        tools: RequestMessages | None = None,
    ) -> bytes | None:
        return ids(*range(50, 50 + len(new)))


WEIGHTS = fleet.weights(
    policy="p",
    version=4,
    step=4,
    tokenizer_hash="t",
    overrides=Sampling(temperature=1.0),
)


def acquired(worker: str, slot: int, **changes: Any) -> RoleAcquired:
    """Return the acquisition of the rollout role under version 4."""
    fields = {"assignment": 1, "slot": slot, "slot_offset": 0, "version": 4}
    return control.acquired(worker, **{**fields, **changes})


def fleet_with(*workers: str, weights: PolicyWeights = WEIGHTS) -> RolloutFleet:
    """Return a fleet with weights of policy `p` and these workers, at slots from 0."""
    rollout_fleet = RolloutFleet()
    rollout_fleet.apply(weights, 0)
    for slot, worker in enumerate(workers):
        rollout_fleet.apply(acquired(worker, slot), 0)
    return rollout_fleet


def context(rollout_fleet: RolloutFleet | None = None, now_ms: int = 100, **more: Any) -> Context:
    return Context(
        rollout_fleet or fleet_with("w"),
        lambda policy: OneTokenAMessage(),
        5,
        1,
        now_ms,
        1_000,
        **more,
    )


def kinds(records: list[Record]) -> list[str]:
    """Return the names of the records' classes."""
    return [type(record).__name__ for record in records]
