"""Turns under a rule that may end them, sampled in chunks and moved between workers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
import orjson

from seamlessflow.producers.rollout.control.controlled import ControlledTurn, TokenRows
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.producers.rollout.engine.contract import ChunkSpan, FinishReason, TokenChunk
from seamlessflow.producers.rollout.turns.dispatch import Dispatch, reported_logprobs
from seamlessflow.schemas.records import (
    GenerateTurn,
    TurnCompleted,
    TurnControl,
    TurnInterrupted,
    TurnProgressed,
)
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack
from tests.builders.records.prompts import generate
from tests.builders.rollout.completions import LetterParser, Letters

SEEN = 20
RARE = -100.0
MARKS = LetterParser.thinking_marks
ENDS = LetterParser.stop_token_ids


def even(count: int) -> tuple[float, ...]:
    """Return log-probs of the 20 likeliest tokens, of which `count` are equally likely.

    Their entropy is ln `count`; so is their confidence, from 5 on.
    """
    return tuple([-log(count)] * count + [RARE] * (SEEN - count))


def control(name: str, exempt: bool = False, **settings: object) -> TurnControl:
    """Return a rule of the release as a turn brings it with it."""
    text = orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)
    return TurnControl(name=name, settings=text, exempt=exempt)


@dataclass(frozen=True)
class SampledText:
    """Tokens that an engine samples; beside each are as many equally likely ones as in `evens`."""

    tokens: Sequence[int]
    evens: Sequence[int]
    reason: FinishReason = "length"

    def chunk(self, begin: int, end: int, reported: int) -> TokenChunk:
        """Return the tokens from `begin` to `end` with as many likeliest ones as are reported."""
        tokens = self.tokens[begin:end]
        top = [even(count)[:reported] for count in self.evens[begin:end]]
        ids = [range(reported) for _ in tokens]
        last = end == len(self.tokens)
        return TokenChunk(
            begin,
            pack(tokens),
            np.full(len(tokens), -0.5, "<f4").tobytes(),
            (ChunkSpan(begin, 7),) if tokens else (),
            self.reason if last else None,
            np.array(ids, "<i4").tobytes(),
            np.array(top, "<f4").tobytes(),
        )


def end_of(
    text: SampledText,
    request: GenerateTurn,
    cuts: Collection[int] = (),
    moves: Collection[int] = (),
    lost: Collection[int] = (),
    turn: type[ControlledTurn] | None = None,
) -> TurnCompleted:
    """Return the end of a turn; its spans, tokens and log-probs are those of all its records.

    Its tokens come in chunks that end at `cuts`. At `moves` another worker goes on behind all
    tokens, at `lost` behind those that were written before.
    """
    written = b""
    asked = request
    for number in range(2 + len(moves) + len(lost)):
        record, ids, state = _dispatch(text, asked, cuts, moves, lost, turn)
        written += ids
        if isinstance(record, TurnCompleted):
            assert written == pack(text.tokens)[: len(written)]
            return replace(record, token_offset=0, token_ids=written, logprobs=b"", spans=())
        asked = replace(request, dispatch=number + 2, completion_ids=written, control_state=state)
    raise AssertionError("the turn did not end")


def _dispatch(
    text: SampledText,
    request: GenerateTurn,
    cuts: Collection[int],
    moves: Collection[int],
    lost: Collection[int],
    turn: type[ControlledTurn] | None,
) -> tuple[TurnCompleted | TurnInterrupted | None, bytes, bytes | None]:
    """Return the last record of a dispatch, the tokens that it wrote, and the state behind them."""
    controlled = UsedRules().controlled(request, MARKS, ENDS)
    if turn is not None and controlled is not None:
        controlled.__class__ = turn
    dispatch = Dispatch(request, Letters(), 0, ENDS, controlled)
    reported = reported_logprobs(request, controlled)
    begin = first = len(request.completion_ids) // TOKEN_BYTES
    written, state = b"", request.control_state
    now_ms = 0
    ends = sorted({*cuts, *moves, *lost, len(text.tokens)})
    for end in [end for end in ends if end > first]:
        chunk = text.chunk(begin, end, reported)
        if end in moves and end < len(text.tokens):
            record = dispatch.end([chunk], "preempted", now_ms)
            state = record.control_state if isinstance(record, TurnInterrupted) else None
            return record, written + record.token_ids, state
        if end in lost and end < len(text.tokens) and written:
            return None, written, state
        now_ms += 2_000
        progressed = dispatch.advance([chunk], now_ms)
        if isinstance(progressed, TurnCompleted):
            return progressed, written + progressed.token_ids, None
        if isinstance(progressed, TurnProgressed):
            written += progressed.token_ids
            state = progressed.control_state
        begin = end
    raise AssertionError("the text did not end")


def asked(rule: TurnControl | None, **fields: object) -> GenerateTurn:
    """Return a turn with a rule."""
    return generate(control=rule, deadline_ms=10**9, **fields)


class LateState(ControlledTurn):
    """A planted fault: the state that is written is that before the last token."""

    before = b""

    def feed(self, rows: TokenRows, offset: int) -> None:
        first = TokenRows(rows.ids[:-TOKEN_BYTES], rows.logprobs[:-TOKEN_BYTES], b"", 0)
        super().feed(first, offset)
        self.before = super().state
        last = TokenRows(rows.ids[-TOKEN_BYTES:], rows.logprobs[-TOKEN_BYTES:], b"", 0)
        super().feed(last, offset + len(first.ids) // TOKEN_BYTES)

    @property
    def state(self) -> bytes:
        return self.before or super().state
