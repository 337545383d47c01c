"""Hashes of the calls that opened, rewarded and closed a session. Pure.

A repeated call has the first call's hash. Calls with an idempotency key repeat each other if key
and content are the same. An open session keeps hashes of content and key. A finalized session keeps
nothing else. Its hashes also include the id or name that the call is addressed to.
"""

import orjson
import xxhash

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas.records import (
    AssignReward,
    CloseSession,
    ForkedPrefix,
    OpenSession,
    Reward,
    SessionOpened,
)

_OPENING = (
    "policy",
    "policies",
    "purpose",
    "split",
    "task_id",
    "group_id",
    "sample",
    "attempt",
    "group_size",
    "min_group_size",
    "pinned_version",
    "metadata",
    "module",
    "agent",
    "max_age_ms",
    "max_idle_ms",
)
"""Fields that a client chooses; the manager adds the others."""


def id_hash(session_id: str) -> int:
    """Return the hash that stands for the session itself."""
    return xxhash.xxh3_64_intdigest(session_id.encode())


def opening_hash(opening: OpenSession | SessionOpened) -> int | None:
    """Return the hash of an opening call, or None if it has no key."""
    if opening.idempotency_key is None:
        return None
    chosen = {name: getattr(opening, name) for name in _OPENING}
    if opening.turn_limit:
        chosen["turn_limit"] = opening.turn_limit
    if opening.overrides is not None:
        chosen["overrides"] = vars(opening.overrides)
    if opening.seed_session is not None:
        chosen["seed_session"] = vars(opening.seed_session)
    if opening.fork is not None:
        chosen["fork"] = _fork_identity(opening.fork)
    return _hash("open", opening.session_id, opening.idempotency_key, chosen)


def _fork_identity(fork: ForkedPrefix) -> list[object]:
    """Return what distinguishes forks; the session keeps this much of its fork."""
    appended = [message.hex() for message in fork.appended]
    # An origin without a parent's return has the hash that earlier releases recorded.
    origin = {name: value for name, value in vars(fork.origin).items() if value is not None}
    return [origin, fork.mode, fork.hash.hex(), appended]


def reward_hash(reward: Reward, key: str | None) -> int:
    """Return a rewarding call's hash, with this key or without one."""
    content = reward.name, reward.value, reward.scope, reward.turn_id, reward.source
    return _hash("reward", key, content)


def asked_hash(close: CloseSession) -> bytes:
    """Return the hash of everything that a closing call asks for; `SessionClosed` keeps it."""
    asked = close.status, close.reason, close.cause, close.on_limit, close.await_reward_ms
    # Earlier releases recorded the hash without names, for a call without names.
    content = (*asked, close.await_rewards) if close.await_rewards else asked
    return xxhash.xxh3_64_digest(orjson.dumps(content))


def close_hash(asked: bytes, key: str | None) -> int:
    """Return a closing call's hash, with this key or without one."""
    return _hash("close", key, asked.hex())


def call_hash(call: AssignReward | CloseSession) -> int:
    """Return the hash of a call's content and key."""
    if isinstance(call, AssignReward):
        return reward_hash(call.reward, call.idempotency_key)
    return close_hash(asked_hash(call), call.idempotency_key)


def addressed_hash(address: str, call: int) -> int:
    """Return the hash of a call addressed to this id or name."""
    return _hash(address, call)


def repeatable(session: Session) -> set[int]:
    """Return the hashes of calls that change nothing if repeated before the session ends.

    A reward without a key is not among them: it may be the next of several judgements.
    """
    if session.closed is None or session.closed.call_hash is None:
        return session.keyed_calls
    return {*session.keyed_calls, close_hash(session.closed.call_hash, None)}


def hashes(session: Session) -> set[int]:
    """Return the hashes of a finalized session's id and of all its calls by that id."""
    session_id = session.session_id
    opening = opening_hash(session.opened)
    made = repeatable(session) | {reward_hash(reward, None) for reward in session.rewards.values()}
    hashed = {id_hash(session_id), *(addressed_hash(session_id, call) for call in made)}
    return hashed if opening is None else hashed | {opening}


def named_hashes(session: Session) -> set[int]:
    """Return the hashes of a finalized session's calls with a key, addressed by its name."""
    name = session.opened.name
    return {addressed_hash(name, call) for call in session.keyed_calls if name}


def _hash(*parts: object) -> int:
    return xxhash.xxh3_64_intdigest(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS))
