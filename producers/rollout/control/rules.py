"""The release's rules that end a turn early. Pure; contracts are in `contract.py`.

Each is built with its settings, and refuses values with which it could never stop a turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import ge, mul
from typing import Any, ClassVar, get_args

from seamlessflow.producers.rollout.control.contract import (
    Ends,
    SampledToken,
    TurnFacts,
    TurnRule,
    TurnStop,
)

VERSION = 1
"""Version of these rules: another version may stop the same tokens elsewhere."""
RuleState = Mapping[str, Any]
SEEN = 20
"""Count of likeliest tokens that `confidence` sees."""
GROUP = 4
TAIL = 8
"""Token counts for its two means."""
BEFORE = 4
"""An entropy is compared with the mean over so many tokens before it."""
_CONFIDENT = 5
_IN_A_ROW = 3
LEAST_CONFIDENCE = math.log(_CONFIDENT)
MOST_ENTROPY = math.log(SEEN)
_LEAST_LOGPROB = -100.0
"""Log-prob for tokens that an engine leaves out; JSON has no infinity."""
_LONGEST_PERIOD = 256
"""Longest period whose state fits into a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """Stop for a turn whose tokens are guesses: ECHO, arXiv 2602.02150, as its code has it.

    A token's confidence is the mean of -log p over the 5 likeliest tokens, where p is a share among
    the 20 likeliest. It is higher the surer the model is of one token. The rule stops a turn if one
    of these holds. `floor`: the mean over 4 tokens is below it. `tail`: the mean over 8 tokens fell
    three times running, and is at most that. `spike`: the entropy rose three times running, and is
    at least this far above the mean over the four tokens before.
    """

    floor: float | None = None
    tail: float | None = None
    spike: float | None = None
    ends: Ends = "turn"
    top: ClassVar[int] = SEEN

    def __post_init__(self) -> None:
        _check_ends(self.ends)
        if self.floor is None and self.tail is None and self.spike is None:
            raise ValueError("confidence needs floor, tail or spike: it has none of them")
        for name, threshold in (("floor", self.floor), ("tail", self.tail)):
            if threshold is not None and not threshold > LEAST_CONFIDENCE:
                raise ValueError(
                    f"{name} {threshold:g} can never stop a turn: the confidence of {_CONFIDENT} "
                    f"tokens is at least ln {_CONFIDENT} = {LEAST_CONFIDENCE:.3f}"
                )
        if self.spike is not None and not 0 <= self.spike < MOST_ENTROPY:
            raise ValueError(
                f"spike {self.spike:g} is not from 0 to ln {SEEN} = {MOST_ENTROPY:.3f}, which the "
                f"entropy of {SEEN} log-probs never exceeds"
            )

    def begin(self, turn: TurnFacts) -> RuleState:
        return {"confidences": [], "entropies": [], "tail": None, "fell": 0, "rose": 0}

    def step(self, state: RuleState, token: SampledToken) -> tuple[RuleState, TurnStop | None]:
        confidence, entropy = confidence_and_entropy(token.top)
        before = state["entropies"]
        confidences = [*state["confidences"], confidence][-TAIL:]
        tail = _mean(confidences) if len(confidences) == TAIL else None
        fell = tail is not None and state["tail"] is not None and tail < state["tail"]
        rose = bool(before) and entropy > before[-1]
        behind = {
            "confidences": confidences,
            "entropies": [*before, entropy][-BEFORE:],
            "tail": tail,
            "fell": state["fell"] + 1 if fell else 0,
            "rose": state["rose"] + 1 if rose else 0,
        }
        reason = self._reason(behind, before, entropy)
        return behind, TurnStop(reason, self.ends) if reason else None

    def _reason(self, state: RuleState, before: Sequence[float], entropy: float) -> str:
        group = state["confidences"][-GROUP:]
        if self.floor is not None and len(group) == GROUP and _mean(group) < self.floor:
            return "floor"
        if self.tail is not None and state["fell"] >= _IN_A_ROW and state["tail"] <= self.tail:
            return "tail"
        if self.spike is not None and state["rose"] >= _IN_A_ROW and len(before) == BEFORE:
            return "spike" if entropy >= _mean(before) + self.spike else ""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Stop for a turn that repeats itself: a block of at most `period` tokens, `times` in a row.

    All repeats together have at least `period` tokens, so a short row of blanks is no repetition.
    """

    period: int = 64
    times: int = 4
    ends: Ends = "turn"
    top: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_ends(self.ends)
        _check_whole("period", self.period, 1, _LONGEST_PERIOD)
        _check_whole("times", self.times, 2, 1000)

    def begin(self, turn: TurnFacts) -> RuleState:
        return {"newest": [], "equal": []}

    def step(self, state: RuleState, token: SampledToken) -> tuple[RuleState, TurnStop | None]:
        # `equal[d - 1]`: how many tokens in a row equal the token `d` places before them.
        newest = state["newest"]
        equal = [
            count + 1 if earlier == token.token_id else 0
            for count, earlier in zip(state["equal"], newest, strict=True)
        ]
        repeats = any(map(ge, equal, _needed(self.period, self.times)))
        behind = {"newest": [token.token_id, *newest][: self.period], "equal": equal}
        if len(newest) < self.period:
            equal.append(0)
        return behind, TurnStop("repeats", self.ends) if repeats else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Stop for a turn that thinks for more than `tokens` tokens."""

    tokens: int
    ends: Ends = "turn"
    top: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_ends(self.ends)
        _check_whole("tokens", self.tokens, 1, 2**31 - 1)

    def begin(self, turn: TurnFacts) -> int:
        return 0

    def step(self, state: int, token: SampledToken) -> tuple[int, TurnStop | None]:
        thought = state + token.thinking
        return thought, TurnStop("thinking", self.ends) if thought > self.tokens else None


RULES: Mapping[str, type[Confidence | Repetition | Budget]] = {
    "confidence": Confidence,
    "repetition": Repetition,
    "budget": Budget,
}


def rule_named(name: str, settings: Mapping[str, Any]) -> TurnRule:
    """Return one of the release's rules with these settings. Raises `ValueError`."""
    try:
        return RULES[name](**settings)
    except TypeError as error:
        raise ValueError(f"{name}: {str(error).partition('() ')[2] or error}") from error


def confidence_and_entropy(top: Sequence[float]) -> tuple[float, float]:
    """Return both, for the distribution over only the likeliest tokens."""
    logprobs = [max(logprob, _LEAST_LOGPROB) for logprob in top]
    weights = list(map(math.exp, logprobs))
    total = sum(weights)
    shift = math.log(total)
    confidence = shift - _mean(logprobs[:_CONFIDENT])
    return confidence, shift - sum(map(mul, weights, logprobs)) / total


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@cache
def _needed(period: int, times: int) -> tuple[int, ...]:
    """Return for each distance how many tokens must equal the token that far before them."""
    return tuple(max(times * distance, period) - distance for distance in range(1, period + 1))


def _check_ends(ends: str) -> None:
    if ends not in get_args(Ends):
        raise ValueError(f"ends is {ends!r}, must be turn or session")


def _check_whole(name: str, number: object, least: int, most: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ValueError(f"{name} is {number!r}, must be a whole number from {least} to {most}")
