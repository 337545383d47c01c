"""Builders of commands to the trajectory manager for a session `s`; see `builder`."""

from typing import Any

from seamlessflow.schemas import records as r
from tests.builders.records.builder import builder
from tests.builders.records.content import message

GATEWAY = r.ReplyAddress(partition=1, gateway="g")
_SENT: dict[str, Any] = {
    "session_id": "s",
    "issued_at_ms": 0,
    "expires_at_ms": 10_000,
    "reply": GATEWAY,
}

open_session = builder(r.OpenSession(**_SENT, command_id="o", policy="p"))
count_tokens = builder(r.CountTokens(**_SENT, command_id="q", messages=(message("user", "x"),)))
describe_session = builder(r.DescribeSession(**_SENT, command_id="d"), "session_id")
cancel_turn = builder(
    r.CancelTurn(**_SENT, command_id="c", turn_id="a", reason="client_gone"), "turn_id"
)
close_session = builder(r.CloseSession(**_SENT, command_id="c"))
assign_reward = builder(
    r.AssignReward(**_SENT, command_id="r", reward=r.Reward(value=1.0)), "reward"
)


def request_turn(turn_id: str = "a", **changes: Any) -> r.RequestTurn:
    fields: dict[str, Any] = {
        **_SENT,
        "command_id": f"request-{turn_id}",
        "body_hash": b"body",
        "messages": (message("user", "x"),),
        "sampling": r.Sampling(max_tokens=8),
        "stream": False,
        "deadline_ms": 5_000,
    }
    return r.RequestTurn(turn_id=turn_id, **{**fields, **changes})
