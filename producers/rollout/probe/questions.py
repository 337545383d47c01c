"""What an engine has to get right before it serves: short questions, and their answers looked
through. Pure; `probing.py` asks.

All that a turn's records take from an engine is looked at. Nothing is left out for an engine that
cannot promise it: rounding alone is its own to say (`Engine.logprob_tolerance`).
"""

import math

from producers.rollout.engine.contract import SamplingParams
from producers.rollout.probe.answers import ProbeAnswer, Question

PROMPT_TEXT = "1 + 1 ="
LENGTH = 8
"""Tokens of an answer."""

SPLIT = 4
"""Where it is taken up again."""

TOP = 8
"""Most likely tokens asked for, more than the draw is narrowed to: a sampled one is among them."""

_NARROWED = 4


def greedy(prompt: bytes, length: int = LENGTH) -> Question:
    """The most likely tokens, one after the other."""
    return Question("greedy", prompt, SamplingParams(length, temperature=0, top_logprobs=TOP))


def sampled(prompt: bytes) -> Question:
    """Drawn from a bent distribution: log-probabilities are to be those of the raw one."""
    bent = SamplingParams(LENGTH, temperature=0.7, top_k=_NARROWED, top_logprobs=TOP)
    return Question("sampled", prompt, bent)


def continued(prompt: bytes, first: ProbeAnswer) -> Question:
    """A greedy answer taken up in its middle."""
    again = SamplingParams(LENGTH, temperature=0, top_logprobs=TOP)
    return Question("continued", prompt, again, tuple(first.ids[:SPLIT]))


def scored_again(prompt: bytes, first: ProbeAnswer) -> Question:
    """What is most likely in the middle of a sampled answer."""
    one = SamplingParams(SPLIT + 1, temperature=0, top_logprobs=TOP)
    return Question("scored again", prompt, one, tuple(first.ids[:SPLIT]))


def stopped(prompt: bytes, first: ProbeAnswer) -> Question:
    """A greedy answer whose first token is to end it, whichever of the likely ones it is."""
    stops = SamplingParams(LENGTH, 0, stop_token_ids=tuple(first.rows[0]), top_logprobs=TOP)
    return Question("stopped", prompt, stops)


def aborted(prompt: bytes) -> Question:
    """To be aborted before it begins."""
    return Question("aborted", prompt, SamplingParams(LENGTH))


def check_full(question: Question, answer: ProbeAnswer) -> None:
    """It went on to its `max_tokens`, which no stop token was to prevent."""
    if answer.reason != "length":
        question.fail("finish_reason", "length", answer.reason)
    count = question.sampling.max_tokens - answer.start
    if len(answer.ids) != count:
        question.fail("token_ids", f"{count} tokens", f"{len(answer.ids)} tokens")


def check_stopped(question: Question, answer: ProbeAnswer) -> None:
    """Its stop token is there, with all that belongs to a token, and is the last."""
    if answer.reason != "stop":
        question.fail("finish_reason", "stop", answer.reason)
    stops = question.sampling.stop_token_ids
    if len(answer.ids) != 1 or answer.ids[0] not in stops:
        question.fail("token_ids", f"one of the stop tokens {list(stops)}", answer.ids)


def check_aborted(question: Question, answer: ProbeAnswer) -> None:
    """It ended as such, without a token."""
    if answer.reason != "abort":
        question.fail("finish_reason", "abort", answer.reason)
    if answer.ids:
        question.fail("token_ids", "none", answer.ids)


def check_likely(question: Question, answer: ProbeAnswer, tolerance: float) -> None:
    """Each token is one of the most likely, under the same distribution; a greedy one is the
    first."""
    for token, logprob, row in zip(answer.ids, answer.logprobs, answer.rows, strict=True):
        if token not in row:
            question.fail("top_ids", f"{token}, which was sampled, among them", list(row))
        if abs(row[token] - logprob) > tolerance:
            question.fail("logprobs", f"{row[token]:g}, as in top_logprobs", f"{logprob:g}")
        if question.sampling.temperature == 0 and max(row.values()) - logprob > tolerance:
            question.fail("token_ids", f"the most likely one, {next(iter(row))}", token)


def check_same(
    question: Question, first: ProbeAnswer, again: ProbeAnswer, tolerance: float
) -> None:
    """`again`, the answer to `question`, is `first` from its own start on, with the same
    distributions. Greedy answers have the same tokens, up to where two were equally likely."""
    shift = again.start - first.start
    for place, row in enumerate(again.rows):
        before = first.rows[place + shift]
        _check_row(question, before, row, tolerance)
        token, expected = again.ids[place], first.ids[place + shift]
        if token != expected:
            if before[expected] - before.get(token, -math.inf) > 2 * tolerance:
                question.fail("token_ids", f"{expected} at {place + again.start}", token)
            return


def check_distribution(
    question: Question, first: ProbeAnswer, again: ProbeAnswer, tolerance: float
) -> None:
    """`again`, one token in the middle of `first`, was drawn from the same distribution."""
    _check_row(question, first.rows[again.start - first.start], again.rows[0], tolerance)


def _check_row(
    question: Question, before: dict[int, float], row: dict[int, float], tolerance: float
) -> None:
    for one, other in ((before, row), (row, before)):
        best = next(iter(one))
        if best not in other and one[best] - min(other.values()) > tolerance:
            question.fail("top_ids", f"those from before, {list(before)}", list(row))
    for token in before.keys() & row.keys():
        if not abs(before[token] - row[token]) <= tolerance:
            expected = f"{before[token]:g} for token {token}, as before, within {tolerance:g}"
            question.fail("logprobs", expected, f"{row[token]:g}")
