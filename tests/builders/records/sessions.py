"""Builders of events of a session `s` with a turn `a` on a worker `w`; see `builder`."""

from typing import Any

import xxhash

from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION
from seamlessflow.consumers.trajectories.sessions.tree import ROOT
from seamlessflow.schemas import records as r
from tests.builders.records.builder import builder
from tests.builders.records.content import ids, logprobs, message

SESSION = "s"

claimed = builder(
    r.PartitionClaimed(partition=0, epoch=1, manager="me", at_ms=0), "epoch", "manager"
)
opened = builder(
    r.SessionOpened(
        session_id=SESSION,
        epoch=1,
        at_ms=0,
        command_id="open",
        policy="p",
        creation_version=0,
        tokenizer_hash="t",
        max_age_ms=1_000_000,
        max_idle_ms=100_000,
        fold_version=FOLD_VERSION,
    )
)
dispatched = builder(
    r.TurnDispatched(
        session_id=SESSION,
        epoch=1,
        at_ms=11,
        turn_id="a",
        dispatch=1,
        from_offset=0,
        worker="w",
        incarnation="i",
        slot=3,
        reason="first",
        no_progress_ms=1_000,
    ),
    "turn_id",
    "dispatch",
)
failed = builder(
    r.TurnFailed(
        session_id=SESSION,
        turn_id="a",
        epoch=1,
        status=504,
        reason="deadline",
        detail="",
        cause="infrastructure",
        at_ms=5,
    ),
    "turn_id",
)
cancelled = builder(
    r.TurnCancelled(session_id=SESSION, epoch=1, at_ms=5, turn_id="a", reason="gone"), "turn_id"
)
undelivered = builder(
    r.TurnUndelivered(
        session_id=SESSION, epoch=1, at_ms=5, command_id="left", turn_id="a", reason="gone"
    ),
    "turn_id",
)
joined = builder(
    r.TurnJoined(session_id=SESSION, epoch=1, at_ms=1, command_id="retry", turn_id="a"), "turn_id"
)
played_back = builder(
    r.TurnPlayedBack(
        session_id=SESSION, epoch=1, at_ms=1, command_id="ask", turn_id="a", body_hash=b""
    ),
    "turn_id",
)
closed = builder(
    r.SessionClosed(
        session_id=SESSION,
        epoch=1,
        at_ms=40,
        command_id="close",
        status="complete",
        reason="",
        cause="policy",
        await_reward_until_ms=40,
    )
)
finalized = builder(r.SessionFinalized(session_id=SESSION, epoch=1, at_ms=41, reason="rewarded"))
ended = builder(r.EndedSession(session_id=SESSION, calls=bytes(16), named_calls=b""))
refused = builder(
    r.CommandRefused(
        session_id=SESSION, epoch=1, at_ms=10, command_id="c", status=404, reason="", detail=""
    )
)
_STARTED = builder(
    r.TurnStarted(
        session_id=SESSION,
        epoch=1,
        at_ms=10,
        command_id="",
        turn_id="",
        reply=r.ReplyAddress(partition=1, gateway="g"),
        parent_node=ROOT,
        parent_end=0,
        suffix_ids=b"",
        suffix_origin="prompt",
        prompt_length=0,
        prompt_hash=b"",
        match_rule="root",
        history_key=b"h" * 16,
        sampling_requested=r.Sampling(),
        sampling_effective=r.Sampling(max_tokens=8),
        behavior_exact=True,
        policy="p",
        stream=False,
        deadline_ms=60_000,
        body_hash=b"",
    )
)


def started(turn_id: str = "a", suffix: bytes = ids(1, 2), **changes: Any) -> r.TurnStarted:
    """Return a turn with a prompt of its own, whose command is `request-<turn>`."""
    fields: dict[str, Any] = {
        "command_id": f"request-{turn_id}",
        "turn_id": turn_id,
        "suffix_ids": suffix,
        "prompt_length": len(suffix) // 4,
        "prompt_hash": xxhash.xxh3_128_digest(suffix),
        "body_hash": turn_id.encode(),
    }
    return _STARTED(**{**fields, **changes})


def rewarded(reward: r.Reward | float = 1.0, **changes: Any) -> r.RewardAssigned:
    judged = reward if isinstance(reward, r.Reward) else r.Reward(value=reward)
    fields: dict[str, Any] = {"epoch": 1, "at_ms": 30, "command_id": "reward", "final": True}
    return r.RewardAssigned(**{"session_id": SESSION, **fields, "reward": judged, **changes})


def progressed(tokens: bytes, turn_id: str = "a", **changes: Any) -> r.TurnProgressed:
    return r.TurnProgressed(**_output(tokens, turn_id, **changes))


def interrupted(tokens: bytes, turn_id: str = "a", **changes: Any) -> r.TurnInterrupted:
    return r.TurnInterrupted(**_output(tokens, turn_id, **{"reason": "preempted", **changes}))


def completed(
    tokens: bytes, turn_id: str = "a", prompt: bytes = ids(1, 2), **changes: Any
) -> r.TurnCompleted:
    fields: dict[str, Any] = {
        "finish_reason": "stop",
        "message": message("assistant", "hello"),
        "well_formed": True,
        "prompt_length": len(prompt) // 4,
        "prompt_hash": xxhash.xxh3_128_digest(prompt),
    }
    return r.TurnCompleted(**_output(tokens, turn_id, **{**fields, **changes}))


def _output(tokens: bytes, turn_id: str, token_offset: int = 0, **more: Any) -> dict[str, Any]:
    """Return the fields of an output event, sampled under version 0."""
    return {
        "session_id": SESSION,
        "turn_id": turn_id,
        "dispatch": 1,
        "worker": "w",
        "incarnation": "i",
        "token_offset": token_offset,
        "token_ids": tokens,
        "logprobs": logprobs(len(tokens) // 4),
        "spans": (r.VersionSpan(start=token_offset, version_min=0, version_max=0),),
        "at_ms": 20,
        **more,
    }
