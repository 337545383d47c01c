"""An idle session's state as bytes, from which exactly the same session is rebuilt. Pure.

Records use their Avro encoding, and everything else is one JSON text. The bytes never leave the
process that wrote them, so they have no version. A session with a running turn has no such form.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from struct import Struct, unpack_from
from typing import Any

import orjson

from seamlessflow.consumers.trajectories.sessions.fold import judgement
from seamlessflow.consumers.trajectories.sessions.session import ForkPlace, Session, Turn, TurnState
from seamlessflow.consumers.trajectories.sessions.tree import Node, Tree
from seamlessflow.schemas.codec import decode, encode

_length = Struct("<Q")


def _others(kind: type[Session | Turn | Node | ForkPlace], *named: str) -> tuple[str, ...]:
    """Return the names of all other fields; the JSON text holds their values as they are."""
    return tuple(field.name for field in fields(kind) if field.name not in named)


_OF_SESSION = _others(
    Session,
    *("opened", "tree", "turns", "running", "ends", "idempotency", "commands", "rewards"),
    *("keyed_calls", "ignored", "closed", "fork"),
)
_OF_TURN = _others(
    Turn, "started", "waiting", "state", "message", "progress", "tensors", "control_state"
)
_OF_NODE = _others(Node, "ids", "logprobs", "spans", "children")
_OF_FORK = _others(ForkPlace, "history_key", "messages")


def state_of(session: Session) -> bytes:
    """Return the session's state. Raises `ValueError` if a turn is running."""
    if session.running:
        raise ValueError(f"session {session.session_id} has a running turn")
    parts = [orjson.dumps(_plain_session(session)), encode(session.opened)]
    prompts = {turn.prompt_node for turn in session.turns.values() if _has_prompt(session, turn)}
    for node in session.tree.nodes:
        # These tokens also stand in a `TurnStarted`.
        parts.append(b"" if node.node_id in prompts else bytes(node.ids))
        parts.append(bytes(node.logprobs))
        parts += map(encode, node.spans)
    for turn in session.turns.values():
        parts += (encode(turn.started), turn.message)
        parts += map(encode, turn.waiting)
        parts += map(encode, turn.tensors.values())
    parts += map(encode, session.rewards.values())
    if session.closed is not None:
        parts.append(encode(session.closed))
    if session.fork is not None:
        parts += (session.fork.history_key, *session.fork.messages)
    return b"".join(
        [_length.pack(len(parts)), *(_length.pack(len(part)) for part in parts), *parts]
    )


def session_of(state: bytes) -> Session:
    """Return the session with this state."""
    parts = _parts(state)
    plain: dict[str, Any] = orjson.loads(next(parts))
    opened: Any = decode(next(parts))
    tree = Tree([_node(node, parts) for node in plain["nodes"]], plain["roots"])
    turns = [_turn(turn, tree, parts) for turn in plain["turns"]]
    rewards = _records(plain["rewards"], parts)
    closed: Any = decode(next(parts)) if plain["closed"] else None
    fork = None if plain["fork"] is None else _fork(plain["fork"], parts)
    return Session(
        opened,
        fork=fork,
        tree=tree,
        turns={turn.started.turn_id: turn for turn in turns},
        ends={bytes.fromhex(key): ids for key, ids in plain["ends"]},
        idempotency={(key, choice): turn_id for key, choice, turn_id in plain["idempotency"]},
        commands=set(plain["commands"]),
        rewards={judgement(reward): reward for reward in rewards},
        keyed_calls=set(plain["keyed_calls"]),
        ignored=Counter(plain["ignored"]),
        closed=closed,
        **dict(zip(_OF_SESSION, plain["session"], strict=True)),
    )


def _plain_session(session: Session) -> dict[str, Any]:
    turns = session.turns.values()
    fork = session.fork
    return {
        "session": _values(session, _OF_SESSION),
        "roots": session.tree.roots,
        "nodes": [
            (_values(node, _OF_NODE), node.children, len(node.spans)) for node in session.tree.nodes
        ],
        "turns": [
            (
                _values(turn, _OF_TURN),
                turn.state,
                len(turn.waiting),
                len(turn.tensors),
                _has_prompt(session, turn),
            )
            for turn in turns
        ],
        "ends": [(key.hex(), ids) for key, ids in session.ends.items()],
        "idempotency": [(*key, turn_id) for key, turn_id in session.idempotency.items()],
        "commands": list(session.commands),
        "rewards": len(session.rewards),
        "keyed_calls": list(session.keyed_calls),
        "ignored": session.ignored,
        "closed": session.closed is not None,
        "fork": None if fork is None else (_values(fork, _OF_FORK), len(fork.messages)),
    }


def _has_prompt(session: Session, turn: Turn) -> bool:
    """Return True if the tree has the tokens from the turn's `TurnStarted`; False for a fork."""
    return session.tree.nodes[turn.prompt_node].ids == turn.started.suffix_ids


def _node(plain: Sequence[Any], parts: Iterator[bytes]) -> Node:
    values, children, spans = plain
    ids = bytearray(next(parts))
    logprobs = bytearray(next(parts))
    named = dict(zip(_OF_NODE, values, strict=True))
    return Node(
        ids=ids, logprobs=logprobs, spans=_records(spans, parts), children=children, **named
    )


def _turn(plain: Sequence[Any], tree: Tree, parts: Iterator[bytes]) -> Turn:
    values, state, waiting, tensors, has_prompt = plain
    started: Any = decode(next(parts))
    message = next(parts)
    addresses = _records(waiting, parts)
    arrays = _records(tensors, parts)
    turn = Turn(
        started,
        waiting=addresses,
        state=TurnState(state),
        message=message,
        tensors={tensor.name: tensor for tensor in arrays},
        **dict(zip(_OF_TURN, values, strict=True)),
    )
    if has_prompt:
        tree.nodes[turn.prompt_node].ids += started.suffix_ids
    return turn


def _fork(plain: Sequence[Any], parts: Iterator[bytes]) -> ForkPlace:
    values, messages = plain
    named = dict(zip(_OF_FORK, values, strict=True))
    key = next(parts)
    return ForkPlace(history_key=key, messages=tuple(islice(parts, messages)), **named)


def _records(count: int, parts: Iterator[bytes]) -> list[Any]:
    return [decode(next(parts)) for _ in range(count)]


def _values(thing: object, names: Sequence[str]) -> list[Any]:
    return [getattr(thing, name) for name in names]


def _parts(state: bytes) -> Iterator[bytes]:
    (count,) = _length.unpack_from(state)
    sizes = unpack_from(f"<{count}Q", state, _length.size)
    at = _length.size * (count + 1)
    for size in sizes:
        yield state[at : at + size]
        at += size
