"""The questions that an engine must answer right before it serves, and the checks on the answers.
Pure; `asking.py` asks.

Every chunk field that goes into a record is checked, for every engine. An engine itself states only
the allowed rounding (`Engine.logprob_tolerance`).
"""

import math

from seamlessflow.producers.rollout.engine.contract import MOST_TOP_LOGPROBS, SamplingParams
from seamlessflow.producers.rollout.probe.answers import ROUNDING, ProbeAnswer, Question

PROMPT_TEXT = "1 + 1 ="
LENGTH = 8
"""Tokens in an answer."""

SPLIT = 4
"""Another request continues an answer from this place."""

TOP = MOST_TOP_LOGPROBS
"""Count of most likely tokens asked for beside each token."""

_TEMPERATURE = 0.7


def greedy(prompt: bytes, length: int = LENGTH) -> Question:
    """Ask for the most likely tokens, one after the other."""
    return Question("greedy", prompt, SamplingParams(length, temperature=0, top_logprobs=TOP))


def sampled(prompt: bytes) -> Question:
    """Ask for tokens at a temperature; log-probabilities must be those at that temperature."""
    cooler = SamplingParams(LENGTH, temperature=_TEMPERATURE, top_logprobs=TOP)
    return Question("sampled", prompt, cooler)


def continued(prompt: bytes, first: ProbeAnswer) -> Question:
    """Ask to continue a greedy answer from its middle."""
    again = SamplingParams(LENGTH, temperature=0, top_logprobs=TOP)
    return Question("continued", prompt, again, tuple(first.ids[:SPLIT]))


def scored_again(prompt: bytes, first: ProbeAnswer) -> Question:
    """Ask for the most likely token in the middle of a sampled answer."""
    sampling = SamplingParams(SPLIT + 1, temperature=0, top_logprobs=TOP)
    return Question("scored again", prompt, sampling, tuple(first.ids[:SPLIT]))


def stopped(prompt: bytes, first: ProbeAnswer) -> Question:
    """Ask for a greedy answer that its first token ends, whichever of the likely ones it is."""
    stops = SamplingParams(LENGTH, 0, stop_token_ids=tuple(first.tops[0]), top_logprobs=TOP)
    return Question("stopped", prompt, stops)


def aborted(prompt: bytes) -> Question:
    """Ask for an answer that will be aborted before it begins."""
    return Question("aborted", prompt, SamplingParams(LENGTH))


def check_full(question: Question, answer: ProbeAnswer) -> None:
    """Check that the answer has all its `max_tokens`."""
    if answer.reason != "length":
        question.fail("finish_reason", "length", answer.reason)
    count = question.sampling.max_tokens - answer.start
    if len(answer.ids) != count:
        question.fail("token_ids", f"{count} tokens", f"{len(answer.ids)} tokens")


def check_stopped(question: Question, answer: ProbeAnswer) -> None:
    """Check that the answer is one stop token."""
    if answer.reason != "stop":
        question.fail("finish_reason", "stop", answer.reason)
    stops = question.sampling.stop_token_ids
    if len(answer.ids) != 1 or answer.ids[0] not in stops:
        question.fail("token_ids", f"one of the stop tokens {list(stops)}", answer.ids)


def check_aborted(question: Question, answer: ProbeAnswer) -> None:
    """Check that the answer was aborted and has no token."""
    if answer.reason != "abort":
        question.fail("finish_reason", "abort", answer.reason)
    if answer.ids:
        question.fail("token_ids", "none", answer.ids)


def check_likely(question: Question, answer: ProbeAnswer, tolerance: float) -> None:
    """Check that each token's log-probability is the same among the most likely tokens.

    A token that is not among them must be less likely. A greedy token must be the most likely one.
    """
    for token, logprob, row in zip(answer.ids, answer.logprobs, answer.tops, strict=True):
        if token not in row:
            if question.sampling.temperature == 0 or logprob > min(row.values()) + tolerance:
                question.fail("top_ids", f"{token}, which was sampled, among them", list(row))
        elif abs(row[token] - logprob) > tolerance:
            question.fail("logprobs", f"{row[token]:g}, as in top_logprobs", f"{logprob:g}")
        elif question.sampling.temperature == 0 and max(row.values()) - logprob > tolerance:
            question.fail("token_ids", f"the most likely one, {next(iter(row))}", token)


def check_same(
    question: Question, first: ProbeAnswer, again: ProbeAnswer, tolerance: float
) -> None:
    """Check that `again`, the answer to `question`, repeats `first` from its own start on.

    The distributions must be the same; the greedy tokens too, up to where two are equally likely.
    """
    shift = again.start - first.start
    for place, row in enumerate(again.tops):
        before = first.tops[place + shift]
        _check_top(question, before, row, tolerance)
        token = again.ids[place]
        expected = first.ids[place + shift]
        if token != expected:
            if before[expected] - before.get(token, -math.inf) > 2 * tolerance:
                question.fail("token_ids", f"{expected} at {place + again.start}", token)
            return  # from here on the two answers have different prompts


def check_distribution(
    question: Question, first: ProbeAnswer, again: ProbeAnswer, tolerance: float
) -> None:
    """Check that `first`, in its middle, has `again`'s distribution, at its own temperature.

    `again` is one greedy token at that place, so it shows the distribution at temperature 1. At
    another temperature, probabilities are divided by a sum over the whole vocabulary. The most
    likely tokens, and the known probability of the rest, bound that sum on both sides.
    """
    cooled = first.tops[again.start - first.start]
    raw = again.tops[0]
    lowest, highest = _normaliser(list(raw.values()))
    for token in cooled.keys() & raw.keys():
        least = raw[token] / _TEMPERATURE - highest
        most = raw[token] / _TEMPERATURE - lowest
        off = 2 * tolerance / _TEMPERATURE + ROUNDING
        if not least - off <= cooled[token] <= most + off:
            expected = f"{least:g} to {most:g} for token {token} at temperature {_TEMPERATURE:g}"
            question.fail("logprobs", expected, f"{cooled[token]:g}")
    best = next(iter(raw))
    if best not in cooled and raw[best] - min(raw.values()) > tolerance:
        question.fail("top_ids", f"{best} among them, as before", list(cooled))


def _normaliser(raw: list[float]) -> tuple[float, float]:
    """Return bounds for log sum p^(1 / T) over a vocabulary; `raw` are its largest log p."""
    total = sum(math.exp(logprob / _TEMPERATURE) for logprob in raw)
    # No other token is likelier than the last of these, and together they have the remaining mass.
    left = max(0.0, 1.0 - sum(map(math.exp, raw)))
    rest = left * math.exp(min(raw) * (1 / _TEMPERATURE - 1))
    return math.log(total), math.log(total + rest)


def _check_top(
    question: Question, before: dict[int, float], row: dict[int, float], tolerance: float
) -> None:
    for ranking, other in ((before, row), (row, before)):
        best = next(iter(ranking))
        if best not in other and ranking[best] - min(other.values()) > tolerance:
            question.fail("top_ids", f"those from before, {list(before)}", list(row))
    for token in before.keys() & row.keys():
        if not abs(before[token] - row[token]) <= tolerance:
            expected = f"{before[token]:g} for token {token}, as before, within {tolerance:g}"
            question.fail("logprobs", expected, f"{row[token]:g}")
