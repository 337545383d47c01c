"""Builds a session's events by hand, with the fold applied to each."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import xxhash

from consumers.trajectories.sessions import fold
from consumers.trajectories.sessions.session import Session, Turn
from consumers.trajectories.sessions.tree import ROOT
from schemas import records as r
from schemas.records import Record, Sampling

SESSION = "s"


def ids(*tokens: int) -> bytes:
    return np.array(tokens, np.int32).tobytes()


def logprobs(count: int) -> bytes:
    return np.full(count, -0.25, np.float32).tobytes()


def message(role: str, content: str | None, **more: Any) -> bytes:
    return orjson.dumps({"role": role, "content": content, **more}, option=orjson.OPT_SORT_KEYS)


def opened(**more: Any) -> r.SessionOpened:
    fields: dict[str, Any] = {
        "session_id": SESSION,
        "epoch": 1,
        "at_ms": 0,
        "command_id": "open",
        "reply": None,
        "policy": "p",
        "creation_version": 0,
        "tokenizer_hash": "t",
        "max_age_ms": 1_000_000,
        "max_idle_ms": 100_000,
        **more,
    }
    return r.SessionOpened(**fields)


def started(turn_id: str = "a", suffix: bytes = ids(1, 2), **more: Any) -> r.TurnStarted:
    fields: dict[str, Any] = {
        "session_id": SESSION,
        "epoch": 1,
        "at_ms": 10,
        "command_id": f"request-{turn_id}",
        "turn_id": turn_id,
        "reply": r.ReplyAddress(partition=1, gateway="g"),
        "parent_node": ROOT,
        "parent_end": 0,
        "suffix_ids": suffix,
        "suffix_origin": "prompt",
        "prompt_length": len(suffix) // 4,
        "prompt_hash": xxhash.xxh3_128_digest(suffix),
        "match_rule": "root",
        "history_key": b"h" * 16,
        "sampling_requested": Sampling(),
        "sampling_effective": Sampling(max_tokens=8),
        "behavior_exact": True,
        "policy": "p",
        "stream": False,
        "deadline_ms": 60_000,
        "body_hash": turn_id.encode(),
        "tools": None,
        **more,
    }
    return r.TurnStarted(**fields)


def dispatched(turn_id: str = "a", dispatch: int = 1, **more: Any) -> r.TurnDispatched:
    fields: dict[str, Any] = {
        "session_id": SESSION,
        "epoch": 1,
        "at_ms": 11,
        "turn_id": turn_id,
        "dispatch": dispatch,
        "from_offset": 0,
        "worker": "w",
        "incarnation": "i",
        "slot": 3,
        "reason": "first",
        "no_progress_ms": 1_000,
        **more,
    }
    return r.TurnDispatched(**fields)


def output(kind: type[Record], tokens: bytes, turn_id: str = "a", **more: Any) -> Record:
    fields: dict[str, Any] = {
        "session_id": SESSION,
        "turn_id": turn_id,
        "dispatch": 1,
        "worker": "w",
        "incarnation": "i",
        "token_offset": 0,
        "token_ids": tokens,
        "logprobs": logprobs(len(tokens) // 4),
        "spans": (r.VersionSpan(start=more.get("token_offset", 0), version_min=0, version_max=0),),
        "at_ms": 20,
        **more,
    }
    return kind(**fields)


def progressed(tokens: bytes, turn_id: str = "a", **more: Any) -> Record:
    return output(r.TurnProgressed, tokens, turn_id, **more)


def interrupted(tokens: bytes, turn_id: str = "a", **more: Any) -> Record:
    return output(r.TurnInterrupted, tokens, turn_id, reason="preempted", **more)


def completed(tokens: bytes, turn_id: str = "a", prompt: bytes = ids(1, 2), **more: Any) -> Record:
    fields: dict[str, Any] = {
        "finish_reason": "stop",
        "message": message("assistant", "hello"),
        "well_formed": True,
        "prompt_length": len(prompt) // 4,
        "prompt_hash": xxhash.xxh3_128_digest(prompt),
        **more,
    }
    return output(r.TurnCompleted, tokens, turn_id, **fields)


def rewarded(value: float = 1.0, command_id: str = "reward", **more: Any) -> r.RewardAssigned:
    return r.RewardAssigned(
        session_id=SESSION,
        epoch=1,
        at_ms=30,
        command_id=command_id,
        reply=None,
        reward=r.Reward(value=value, **more),
        final=True,
    )


def closed(**more: Any) -> r.SessionClosed:
    fields: dict[str, Any] = {
        "session_id": SESSION,
        "epoch": 1,
        "at_ms": 40,
        "command_id": "close",
        "reply": None,
        "status": "complete",
        "reason": "",
        "cause": "policy",
        "await_reward_until_ms": 40,
        **more,
    }
    return r.SessionClosed(**fields)


def finalized() -> r.SessionFinalized:
    return r.SessionFinalized(session_id=SESSION, epoch=1, at_ms=41, reason="rewarded")


@dataclass
class Story:
    """A session and what became of each event told."""

    session: Session | None = None
    offset: int = 100
    accepted: list[bool] = field(default_factory=list)

    def tell(self, *events: Record) -> "Story":
        """Folds more events."""
        for event in events:
            folded = fold.apply(self.session, event, self.offset, lambda _: "arguments")
            self.session = folded.session
            self.accepted.append(folded.accepted)
            self.offset += 1
        return self

    @property
    def known(self) -> Session:
        """The session."""
        assert self.session is not None
        return self.session

    def turn(self, turn_id: str = "a") -> Turn:
        """One of its turns."""
        return self.known.turns[turn_id]

    def sampled(self, turn_id: str = "a") -> bytes:
        """Tokens accepted for a turn."""
        return bytes(self.known.tree.nodes[self.turn(turn_id).node].ids)


def told(*events: Record) -> Story:
    """A session that was opened and then saw `events`."""
    return Story().tell(opened(), *events)
