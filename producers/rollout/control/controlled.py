"""One dispatch of a turn under a rule that may end it. Pure; called by `turns/dispatch.py`.

The state after the last token is written with the tokens, and goes with the turn to its next
worker. If the rule raises an error, this turn goes on without it, from the same token on every
worker.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson

from seamlessflow.infra.user_functions import place_of
from seamlessflow.producers.rollout.control.contract import (
    Ends,
    SampledToken,
    TurnFacts,
    TurnRule,
    TurnStop,
    checked_step,
    state_json,
)
from seamlessflow.schemas.records import GenerateTurn
from seamlessflow.schemas.tokens import TOKEN_BYTES, unpack

_log = logging.getLogger(__name__)


ThinkingMarks = tuple[int, int]
"""Ids of the two tokens that begin and end thinking."""


class StopVerdict(NamedTuple):
    """Verdict on a turn; `at` is its completion's length up to and with the token judged."""

    reason: str
    at: int
    ends: Ends


class TokenRows(NamedTuple):
    """Tokens as an engine delivers them, in bytes; each has log-probs of `top` likeliest tokens."""

    ids: bytes
    logprobs: bytes
    top_logprobs: bytes
    top: int


class ControlledTurn:
    """A turn under a rule. The results of a user's rule are checked at each token."""

    def __init__(
        self,
        request: GenerateTurn,
        rule: TurnRule | None,
        marks: ThinkingMarks | None,
        ends: Collection[int] = (),
        error: str = "",
    ) -> None:
        """Begin, or go on after an earlier dispatch's tokens. Tokens in `ends` end any turn.

        `error` says why the turn has no `rule`.
        """
        control = request.control
        self.exempt = control is not None and control.exempt
        """True if the turn goes on despite a verdict."""
        self.verdict: StopVerdict | None = None
        self.error = error
        """Why the rule was given up for this turn; empty if it was not."""
        self.name = "" if control is None else control.name
        self._checked = control is not None and bool(control.sha256)
        self._rule = rule
        self._ends = ends
        self._marks = marks
        self._thinking = _opens_thinking(marks, request.prompt_ids + request.completion_ids)
        self._state: Any = None
        self._begin(request)

    @property
    def top(self) -> int:
        """Count of likeliest tokens that the engine has to report."""
        return 0 if self._rule is None or self._over else self._rule.top

    @property
    def state(self) -> bytes:
        """The state after the last token, as JSON."""
        verdict = None if self.verdict is None else list(self.verdict)
        return orjson.dumps([self._state, verdict, self.error])

    def feed(self, rows: TokenRows, offset: int) -> None:
        """Show the rule further tokens; the first stands at the completion's `offset`."""
        rule = self._rule
        if rule is None or self._over:
            return
        try:
            for at, token in enumerate(self._tokens(rows, rule.top), offset + 1):
                stop = self._step(rule, token)
                if stop is not None:
                    self.verdict = StopVerdict(stop.reason, at, stop.ends)
                    return
        except (Exception, SystemExit) as error:  # a user's rule may raise anything
            self._give_up(error)

    @property
    def _over(self) -> bool:
        return self.verdict is not None or bool(self.error)

    def _begin(self, request: GenerateTurn) -> None:
        if request.control_state is not None:
            self._state, verdict, before = orjson.loads(request.control_state)
            self.verdict = None if verdict is None else StopVerdict(*verdict)
            self.error = before or self.error
        elif request.completion_ids:
            self.error = self.error or "no state behind the tokens sampled so far is recorded"
        elif self._rule is not None:
            try:
                self._state = self._rule.begin(_facts(request))
                state_json(self._state)
            except (Exception, SystemExit) as error:  # a user's rule may raise anything
                self._give_up(error)

    def _step(self, rule: TurnRule, token: SampledToken) -> TurnStop | None:
        if token.token_id in self._ends:  # the turn ends here in any case
            return None
        if not self._checked:
            self._state, stop = rule.step(self._state, token)
            return stop
        self._state, stop = checked_step(rule.step(self._state, token))
        state_json(self._state)
        return stop

    def _tokens(self, rows: TokenRows, top: int) -> Iterable[SampledToken]:
        logprobs = np.frombuffer(rows.logprobs, "<f4").tolist()
        likeliest = _likeliest(rows, len(logprobs), top)
        for token_id, logprob, others in zip(unpack(rows.ids), logprobs, likeliest, strict=True):
            yield SampledToken(token_id, logprob, others, self._thinks(token_id))

    def _thinks(self, token_id: int) -> bool:
        """Return True for a token within thinking; note where that begins and ends."""
        marks = self._marks
        if marks is not None and token_id in marks:
            self._thinking = token_id == marks[0]
            return False
        return self._thinking

    def _give_up(self, error: BaseException) -> None:
        self._state = None
        self.error = f"{type(error).__name__}: {error}"[:500]
        _warn(self.name, f"{place_of(error)}{self.error}")


def _opens_thinking(marks: ThinkingMarks | None, ids: bytes) -> bool:
    """Return True if thinking has begun in these ids and not ended."""
    if marks is None:
        return False
    tokens = np.frombuffer(ids, "<i4")
    places = np.flatnonzero(np.isin(tokens, marks))
    return bool(places.size) and int(tokens[places[-1]]) == marks[0]


def _likeliest(rows: TokenRows, count: int, top: int) -> Sequence[Sequence[float]]:
    if not top:
        return [()] * count
    values_NK = np.frombuffer(rows.top_logprobs, "<f4").reshape(count, rows.top)
    likeliest: list[list[float]] = values_NK[:, :top].tolist()
    return likeliest


def _facts(request: GenerateTurn) -> TurnFacts:
    return TurnFacts(
        prompt_length=len(request.prompt_ids) // TOKEN_BYTES,
        max_tokens=request.sampling.max_tokens,
        temperature=request.sampling.temperature or 1.0,
        tools=request.tools is not None,
    )


@cache
def _warn(name: str, reason: str) -> None:
    """Log an error once in a process: every turn may have it."""
    _log.warning("rollout.control: %s failed, so turns go on without it: %s", name, reason)
