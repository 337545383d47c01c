"""Rows that describe a session: its identity, outcome, messages and origin. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.recorded.export.tables import Cell, Kind, Table
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.tokens import POLICY
from seamlessflow.trainer.data.credit.returns import RewardWeights, session_return

PROVENANCE = {
    "cluster": Kind.TEXT,
    "prefix": Kind.TEXT,
    "partition": Kind.INTEGER,
    "first_offset": Kind.INTEGER,
    "last_offset": Kind.INTEGER,
    "fold_version": Kind.INTEGER,
}
IDENTITY = {
    "session_id": Kind.TEXT,
    "group_id": Kind.TEXT,
    "task_id": Kind.TEXT,
    "sample": Kind.INTEGER,
    "attempt": Kind.INTEGER,
    "purpose": Kind.TEXT,
    "split": Kind.TEXT,
    "status": Kind.TEXT,
    "cause": Kind.TEXT,
    "reward": Kind.NUMBER,
    "tokenizer_hash": Kind.TEXT,
}
SESSIONS_TABLE = Table(
    "sessions",
    {
        **IDENTITY,
        "policy": Kind.TEXT,
        "reason": Kind.TEXT,
        "limit": Kind.TEXT,
        "rewards": Kind.TEXT,
        "creation_version": Kind.INTEGER,
        "version_min": Kind.INTEGER,
        "version_max": Kind.INTEGER,
        "temperature": Kind.NUMBER,
        "tokens": Kind.INTEGER,
        "tokens_sampled": Kind.INTEGER,
        "tokens_trained": Kind.INTEGER,
        "tokens_masked": Kind.TEXT,
        "messages": Kind.TEXT,
        "turns": Kind.TEXT,
        "metadata": Kind.TEXT,
        "forked_from": Kind.TEXT,
        "opened_at_ms": Kind.INTEGER,
        "closed_at_ms": Kind.INTEGER,
        "finalized_at_ms": Kind.INTEGER,
        **PROVENANCE,
    },
)


@dataclass(frozen=True, slots=True)
class ExportedSession:
    """A session with its trajectory, and the topics that it comes from."""

    session: Session
    made: Trajectory
    cluster: str
    prefix: str
    weights: RewardWeights
    """Weights for the rewards that add up to its return."""


def identity(exported: ExportedSession) -> dict[str, Cell]:
    """Return the columns that a session's rows have in all tables: identity and provenance."""
    made = exported.made
    cells: dict[str, Cell] = {
        name: getattr(made, name) for name in (*IDENTITY, *PROVENANCE) if hasattr(made, name)
    }
    reward = session_return(made, exported.weights)
    return {**cells, "reward": reward, "cluster": exported.cluster, "prefix": exported.prefix}


def session_row(exported: ExportedSession) -> Mapping[str, Cell]:
    """Return the session's row in `SESSIONS_TABLE`."""
    made = exported.made
    same = ("policy", "reason", "limit", "creation_version", "version_min", "version_max")
    times = ("opened_at_ms", "closed_at_ms", "finalized_at_ms")
    sampled = [node for node in made.nodes if node.origin == POLICY]
    temperatures = {node.logprob_temperature for node in sampled}
    return {
        **identity(exported),
        **{name: getattr(made, name) for name in (*same, *times)},
        "rewards": _text([vars(reward) for reward in made.rewards]),
        "temperature": temperatures.pop() if len(temperatures) == 1 else None,
        "tokens": len(made.loss_mask),
        "tokens_sampled": sum(node.length for node in sampled),
        "tokens_trained": made.loss_mask.count(1),
        "tokens_masked": _text(dict(made.masked_tokens)),
        "messages": _messages(exported.session),
        "turns": _text([_turn(turn) for turn in exported.session.turns.values()]),
        "metadata": _text(dict(made.metadata)),
        "forked_from": None if made.fork is None else _text(vars(made.fork)),
    }


def _messages(session: Session) -> str:
    """Return the conversation of the session's last completed turn."""
    completed = [turn for turn in session.turns.values() if turn.state is TurnState.COMPLETED]
    return _text(_read(session.history(completed[-1]))) if completed else "[]"


def _turn(turn: Turn) -> dict[str, Any]:
    """Return a turn with the messages that its prompt adds, and the sampled message."""
    started = turn.started
    return {
        "turn_id": started.turn_id,
        "copied_from": turn.copied_from or None,
        "parent_turn": started.parent_turn,
        "module": started.module,
        "policy": started.policy,
        "match_rule": started.match_rule,
        "match_detail": started.match_detail,
        "state": str(turn.state),
        "finish_reason": turn.finish_reason,
        "new_messages": _read(started.new_messages),
        "message": _read([turn.message])[0] if turn.message else None,
        "tools": _read([started.tools])[0] if started.tools else None,
    }


def _read(messages: Sequence[bytes]) -> list[Any]:
    """Return JSON messages unread: they are written as they are."""
    return [orjson.Fragment(message) for message in messages]


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()
