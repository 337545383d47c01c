"""A worker that the recorder plays, with the mistakes that the fold must bear."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np

from seamlessflow.infra.clock import now_ms
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, SESSIONS, fleet_key
from tests.builders.records import control, fleet
from tests.builders.records.content import ids, message
from tests.golden.conversations import user
from tests.golden.recording_system import BY_HAND, Agent, RecordingSystem

MISTAKES = ("", "repeat", "gap", "prompt", "versions", "tensors", "late")
PATIENCE_S = {"late": 3.0}


class Hand:
    """The worker; it takes its role at once."""

    def __init__(self, system: RecordingSystem) -> None:
        self._made = system.running
        self._questions = 0
        fields: dict[str, Any] = {
            **{"incarnation": "i1", "slot": 12, "version": 0, "policy": BY_HAND},
            **{"assignment": 900, "at_ms": now_ms()},
        }
        acquired = control.acquired(BY_HAND, slot_offset=0, **fields)
        self._made.producer.send(CONTROL.name, acquired)
        beat = fleet.heartbeat(BY_HAND, role="rollout", **fields)
        self._made.producer.send(FLEET.name, beat, key=fleet_key(beat))
        self._made.producer.flush(30)

    def answer_one(self, agent: Agent, mistake: str) -> None:
        """Have the agent ask, and answer with this mistake."""
        with ThreadPoolExecutor(1) as calls:
            self._questions += 1
            body = {"messages": [user(f"question {self._questions}")], "stream": True}
            patience_s = PATIENCE_S.get(mistake, 120.0)
            call = calls.submit(agent.post, "/chat/completions", body, patience_s)
            started = self._made.expect(r.TurnStarted, lambda record: record.policy == BY_HAND)
            dispatched = self._made.expect(
                r.TurnDispatched, lambda record: record.worker == BY_HAND
            )
            if mistake == "late":
                assert isinstance(call.exception(), httpx.ReadTimeout)
            for event in _events(started, dispatched, mistake):
                self._made.producer.send(SESSIONS.name, event, key=agent.session_id)
            self._made.producer.flush(30)
            if mistake == "late":
                self._made.expect(r.TurnUndelivered)
            else:
                assert call.result().status_code == 200


def _events(
    started: r.TurnStarted, dispatched: r.TurnDispatched, mistake: str
) -> tuple[Record, ...]:
    sampled: dict[str, Any] = {
        "session_id": started.session_id,
        "turn_id": started.turn_id,
        "dispatch": dispatched.dispatch,
        "worker": dispatched.worker,
        "incarnation": dispatched.incarnation,
        "at_ms": now_ms(),
    }
    first = r.TurnProgressed(**sampled, **_tokens(0, 3, mistake), delta=b'{"content":"one "}')
    gap = r.TurnProgressed(**sampled, **_tokens(7, 2, mistake), delta=b'{"content":"never "}')
    last = r.TurnCompleted(
        **sampled,
        **_tokens(3, 4, mistake),
        finish_reason="stop",
        message=message("assistant", "one two"),
        well_formed=True,
        delta=b'{"content":"two"}',
        prompt_length=started.prompt_length + (mistake == "prompt"),
        prompt_hash=started.prompt_hash,
    )
    match mistake:
        case "repeat":
            return first, first, last, last, first
        case "gap":
            return first, gap, last
    return first, last


def _tokens(start: int, count: int, mistake: str) -> dict[str, Any]:
    mixed = 1 if mistake == "versions" and start else 0
    tensor = r.TokenTensor(
        name="entropy",
        from_token=start,
        to_token=start + count,
        dtype="float32",
        shape=(count,),
        data=np.arange(count, dtype="<f4").tobytes(),
    )
    return {
        "token_offset": start,
        "token_ids": ids(*range(100 + start, 100 + start + count)),
        "logprobs": np.full(count, -0.25, "<f4").tobytes(),
        "spans": (r.VersionSpan(start=start, version_min=0, version_max=mixed),),
        "tensors": (tensor,) if mistake == "tensors" else (),
    }
