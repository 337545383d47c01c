"""Events that managers and workers might write next, faults among them.

A step is a few small choices; what they mean depends on what the session has come to.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import xxhash
from hypothesis import strategies as st

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.oracle import ExpectedSession, ExpectedTurn

Numbers = Iterator[int]
"""Each number once: whatever is made of them can be told apart."""
SESSIONS = 2
RIGHT = "right"
FAULTS = (*[RIGHT] * 12, "worker", "incarnation", "dispatch", "offset", "epoch", "hash", "twice")


@dataclass(frozen=True)
class Step:
    """One random step: an action, the session and turn it concerns, a size and a fault."""

    action: str
    which: int
    amount: int
    fault: str


def _start(numbers: Numbers, session: ExpectedSession, step: Step) -> Record:
    parent, end = _place(session, step)
    suffix = [next(numbers) for _ in range(step.amount % 3 + (parent < 0))]
    prompt = session.path(parent, end) + suffix
    return sessions.started(
        f"t{next(numbers)}",
        ids(*suffix),
        parent_node=parent,
        parent_end=end,
        prompt_length=len(prompt),
        prompt_hash=_hash(prompt),
        behavior_exact=step.amount != 7,
        inexact_reason="top_p" if step.amount == 7 else "",
        siblings="all" if step.which % 5 == 0 else "continued",
        train_undelivered=step.which % 3 == 0,
    )


def _place(session: ExpectedSession, step: Step) -> tuple[int, int]:
    """Return the place a prompt continues: none, a prompt, a completion, or part of a node."""
    if not session.turns or step.amount == 2:
        return -1, 0
    turn = step.which % len(session.turns)
    if step.amount in (0, 3):
        node = 2 * turn
        return node, len(session.node(node))
    node = 2 * turn + 1
    length = len(session.node(node))
    return node, min(length, step.which) if step.amount == 6 else length


def dispatch(numbers: Numbers, session: ExpectedSession, turn: ExpectedTurn, step: Step) -> Record:
    further = {"dispatch": 0, "hash": 2}.get(step.fault, 1)
    return sessions.dispatched(
        turn.started.turn_id,
        len(turn.dispatches) + further,
        from_offset=len(turn.sampled) + (step.fault == "offset"),
        worker=f"w{step.amount}",
    )


def _output(kind: Callable[..., Record]) -> Callable[..., Record]:
    def made(numbers: Numbers, session: ExpectedSession, turn: ExpectedTurn, step: Step) -> Record:
        sampler = turn.dispatches[-1].event if turn.dispatches else sessions.dispatched()
        tokens = [next(numbers) for _ in range(step.amount)]
        start = len(turn.sampled) + (step.fault == "offset")
        return kind(
            ids(*tokens),
            turn.started.turn_id,
            dispatch=sampler.dispatch - (step.fault == "dispatch"),
            worker="wrong" if step.fault == "worker" else sampler.worker,
            incarnation="wrong" if step.fault == "incarnation" else sampler.incarnation,
            token_offset=start,
            logprobs=np.array(tokens, np.float32).tobytes(),
            spans=_spans(start, step.amount),
        )

    return made


def _spans(start: int, tokens: int) -> tuple[r.VersionSpan, ...]:
    """Return spans; records of four tokens have two versions, of six an inexact one."""
    versions = {4: ((0, 1, 1), (2, 2, 2)), 6: ((0, 1, 2), (5, 2, 2))}.get(tokens, ((0, 1, 1),))
    return tuple(
        r.VersionSpan(start=start + at, version_min=low, version_max=high)
        for at, low, high in versions
        if at < tokens
    )


def _complete(numbers: Numbers, session: ExpectedSession, turn: ExpectedTurn, step: Step) -> Record:
    place = 2 * session.turns.index(turn)
    prompt = session.path(place, len(session.node(place)))
    made: Any = _output(sessions.completed)(numbers, session, turn, step)
    return replace(  # type: ignore[no-any-return]
        made,
        prompt_length=len(prompt),
        prompt_hash=b"?" if step.fault == "hash" else _hash(prompt),
    )


def _fail(numbers: Numbers, session: ExpectedSession, turn: ExpectedTurn, step: Step) -> Record:
    made: Any = _output(sessions.progressed)(numbers, session, turn, step)
    named = step.amount < 4
    return sessions.failed(
        turn.started.turn_id,
        epoch=None if named else 0,
        dispatch=made.dispatch if named else None,
        worker=made.worker if named else None,
        incarnation=made.incarnation if named else None,
        at_ms=1,
    )


def _cancel(numbers: Numbers, session: ExpectedSession, turn: ExpectedTurn, step: Step) -> Record:
    return sessions.cancelled(turn.started.turn_id, epoch=0, at_ms=1, command_id="")


def _leave(numbers: Numbers, session: ExpectedSession, turn: ExpectedTurn, step: Step) -> Record:
    left = [candidate for candidate in session.turns if candidate.end == "completed"] or [turn]
    named = left[step.which % len(left)].started.turn_id
    return sessions.undelivered(named, epoch=0, at_ms=1, command_id="")


def _join(numbers: Numbers, session: ExpectedSession, turn: ExpectedTurn, step: Step) -> Record:
    return sessions.joined(turn.started.turn_id, epoch=0, command_id="")


def _hash(tokens: Sequence[int]) -> bytes:
    return xxhash.xxh3_128_digest(np.array(tokens, np.int32).tobytes())


ON_SESSIONS: dict[str, Callable[[Numbers, ExpectedSession, Step], Record]] = {
    "start": _start,
    "reward": lambda numbers, session, step: sessions.rewarded(step.amount / 4),
    "close": lambda numbers, session, step: sessions.closed(),
    "finalize": lambda numbers, session, step: sessions.finalized(),
}
ON_TURNS: dict[str, Callable[[Numbers, ExpectedSession, ExpectedTurn, Step], Record]] = {
    "dispatch": dispatch,
    "progress": _output(sessions.progressed),
    "interrupt": _output(sessions.interrupted),
    "complete": _complete,
    "fail": _fail,
    "cancel": _cancel,
    "leave": _leave,
    "join": _join,
}
OUTPUTS = ("progress", "interrupt", "complete")
_OFTEN = ("start", *OUTPUTS, "progress", "complete")
_ACTIONS = (*_OFTEN * 6, *ON_SESSIONS, *ON_TURNS, "claim")
_CHOICES = (_ACTIONS, range(8 * SESSIONS), range(8), FAULTS)


def step(number: int) -> Step:
    """Return one of all possible steps; Hypothesis draws a number much faster than its parts."""
    chosen: list[Any] = []
    for choices in _CHOICES:
        number, place = divmod(number, len(choices))
        chosen.append(choices[place])
    return Step(*chosen)


STEPS = st.integers(0, prod(map(len, _CHOICES)) - 1).map(step)
