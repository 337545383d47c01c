"""Contract of a judge: what it gets about a session, and what it may return. Authors read this.

A judge is a callable, sync or async, or a program that reads the same as JSON:

    def score(session: JudgedSession) -> float | dict

It returns one reward: a number, `{"reward": 0.5}`, or `{"rewards": {NAME: 0.5}}` with the judge's
own name. Anything else is no reward, and neither is an exception. The session is then judged again
as often as `retries` says. An `OSError` is an outage, and so is a program that ends with the exit
status 75. An outage is waited out until the session's deadline.

A judge must be a function of the session. The same session may be judged twice, for example when a
reward worker is killed. The reward that is recorded first counts, and the other changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.tokens import TOKEN_BYTES, unpack


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """A completed turn."""

    turn_id: str
    policy: str
    module: str
    message: Mapping[str, Any]
    """The answer in OpenAI's chat form."""
    tokens: Sequence[int]
    """Ids of the sampled tokens."""
    finish_reason: str


@dataclass(frozen=True, slots=True)
class JudgedSession:
    """A closed session, as its judges see it."""

    session_id: str
    group_id: str
    task_id: str
    sample: int
    policy: str
    purpose: str
    """`train`, `eval` or `explore`."""
    split: str
    metadata: Mapping[str, str]
    status: str
    """`complete` or `truncated`."""
    limit: str
    """Limit that ended the policy; empty if none did."""
    messages: Sequence[Mapping[str, Any]]
    """History up to the last completed turn, with its answer."""
    tokens: Sequence[int]
    """Ids of all tokens in that history, including the prompt."""
    turns: Sequence[JudgedTurn]
    """All completed turns in order, including those that a fork copied."""
    rewards: Mapping[str, float]
    """The session's rewards by name, given by its agent or a person; no judge sees another's."""
    turn_rewards: Mapping[str, Mapping[str, float]]
    """Its turns' rewards, by turn id and then by name."""
    task: Any = None
    """The task as its file has it; None if the log does not hold it."""


def judged_session(session: Session) -> JudgedSession:
    """Return what judges get about a closed session, except its task.

    Raises `ValueError` if the session is open.
    """
    if session.closed is None:
        raise ValueError(f"session {session.session_id} is open")
    opened = session.opened
    turns = [turn for turn in session.turns.values() if turn.state is TurnState.COMPLETED]
    last = turns[-1] if turns else None
    rewards: dict[str, float] = {}
    turn_rewards: dict[str, dict[str, float]] = {}
    for reward in session.rewards.values():
        if reward.source == JUDGE:
            continue
        of_turn = reward.turn_id is not None
        place = turn_rewards.setdefault(reward.turn_id or "", {}) if of_turn else rewards
        place[reward.name] = reward.value
    return JudgedSession(
        session_id=opened.session_id,
        group_id=opened.group_id or opened.session_id,
        task_id=opened.task_id,
        sample=opened.sample,
        policy=opened.policy,
        purpose=opened.purpose,
        split=opened.split,
        metadata=opened.metadata,
        status=session.closed.status,
        limit=session.closed.limit,
        messages=[] if last is None else [read_json(part) for part in session.history(last)],
        tokens=[] if last is None else _tokens(session, last.node),
        turns=[_judged_turn(session, turn) for turn in turns],
        rewards=rewards,
        turn_rewards=turn_rewards,
    )


def _judged_turn(session: Session, turn: Turn) -> JudgedTurn:
    return JudgedTurn(
        turn_id=turn.started.turn_id,
        policy=turn.started.policy,
        module=turn.started.module,
        message=read_json(turn.message),
        tokens=unpack(bytes(session.tree.nodes[turn.node].ids)),
        finish_reason=turn.finish_reason or "",
    )


def _tokens(session: Session, number: int) -> list[int]:
    """Return the token ids from the tree's root to the end of a node."""
    nodes = session.tree.nodes
    node = nodes[number]
    parts = [bytes(node.ids)]
    while node.parent >= 0:
        parent = nodes[node.parent]
        parts.append(bytes(parent.ids)[: node.parent_end * TOKEN_BYTES])
        node = parent
    return unpack(b"".join(reversed(parts)))
