"""A session of 2,000 turns and 1,000,000 tokens, each answer sampled by two workers."""

from dataclasses import replace
from typing import Any

import numpy as np

from seamlessflow.console.views.session.reasons import ExplainedTokens
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.console.explained_sessions import (
    ENDED,
    OPENED,
    READY,
    STEP,
    committed,
    explanation,
    rows_of,
)
from tests.builders.records import sessions

TURNS = 2_000
PROMPT = 200
ANSWER = 300
TOKENS = TURNS * (PROMPT + ANSWER)
_HALF = ANSWER // 2
_TURNS_A_VERSION = 100


def long_session(turns: int = TURNS) -> ExplainedTokens:
    """Return the session, of which a step trained the answers of even turns."""
    events: list[Record] = []
    for number in range(turns):
        events += _turn(number)
    answer = list(range(ANSWER))
    rows = [replace(rows_of(0, *answer), turn=f"t{number}") for number in range(0, turns, 2)]
    commit = committed(len(rows) * ANSWER)
    return explanation([OPENED, *events, *ENDED], [READY, commit], {STEP: rows})


def _turn(number: int) -> list[Record]:
    """Return a turn whose second half another worker samples, under newer weights."""
    name = f"t{number}"
    place: dict[str, Any] = {"parent_node": 2 * number - 1, "parent_end": ANSWER if number else 0}
    prompt: dict[str, Any] = {
        "prompt_hash": b"",
        "prompt_length": number * (PROMPT + ANSWER) + PROMPT,
    }
    (first, second) = (f"w{number % 4}", f"w{(number + 1) % 4}")
    version = number // _TURNS_A_VERSION
    return [
        sessions.started(name, _ids(0, PROMPT), match_rule="extend", **place, **prompt),
        sessions.dispatched(name, worker=first),
        sessions.interrupted(_ids(0, _HALF), name, worker=first, spans=_span(0, version)),
        sessions.dispatched(name, 2, from_offset=_HALF, worker=second, reason="interrupted"),
        sessions.completed(
            _ids(_HALF, ANSWER),
            name,
            dispatch=2,
            worker=second,
            token_offset=_HALF,
            spans=_span(_HALF, version + 1),
            **prompt,
        ),
    ]


def _ids(begin: int, end: int) -> bytes:
    return np.arange(begin, end, dtype="<i4").tobytes()


def _span(start: int, version: int) -> tuple[r.VersionSpan, ...]:
    return (r.VersionSpan(start=start, version_min=version, version_max=version),)
