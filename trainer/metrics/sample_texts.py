"""Texts of sessions that a step trained, as a table for people. Pure but for the tokenizer."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from seamlessflow.schemas.arrays import Int32s
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.sessions import ValidSession

DecodeText = Callable[[Sequence[int]], str]

_PROMPT_TOKENS, _ANSWER_TOKENS = 500, 1_500
"""Most tokens that are shown: the last of a prompt, the first of an answer."""


class SampleText(NamedTuple):
    """A row of the table."""

    group: str
    session: str
    reward: float
    prompt: str
    """Text before the first trained token, or its end."""
    answer: str
    """Text from there on, with the results of tools, or its beginning."""


def sample_texts(batch: Batch, count: int, decode: DecodeText) -> list[SampleText]:
    """Return up to `count` rows: the sessions with the best and the worst return of each group."""
    return [_row(session, decode) for session in islice(_extremes(batch), count)]


def _extremes(batch: Batch) -> Iterator[ValidSession]:
    for prepared in batch.groups:
        sessions = [session for session in prepared.group.sessions if session.chains]
        ordered = sorted(sessions, key=lambda session: session.reward)
        yield from ordered[:1]
        yield from ordered[1:][-1:]


def _row(session: ValidSession, decode: DecodeText) -> SampleText:
    tokens = max(session.chains, key=len).tokens
    first = int(np.argmax(tokens.trained_T))
    prompt_P = tokens.ids_T[:first]
    answer_A = tokens.ids_T[first:]
    return SampleText(
        session.source.group_id,
        session.source.session_id,
        session.reward,
        _text(prompt_P[-_PROMPT_TOKENS:], decode),
        _text(answer_A[:_ANSWER_TOKENS], decode),
    )


def _text(ids: Int32s, decode: DecodeText) -> str:
    return decode(ids.tolist())
