"""Trial of a user's rule on a small turn, before a run. Pure."""

from collections.abc import Callable

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.producers.rollout.control.contract import (
    SampledToken,
    TurnFacts,
    TurnRule,
    TurnStop,
    checked_step,
    state_json,
)

_TOKENS = 48
_MOST_TOP = 20


def try_control(function: Callable[..., TurnRule]) -> list[tuple[bytes, TurnStop | None]]:
    """Call a function of the seam `rollout.control.name`, and its rule for some tokens.

    Return states and verdicts. Raises what the function raises, and `ResultMalformed`.
    """
    rule = function()
    top = rule.top
    if not isinstance(top, int) or isinstance(top, bool) or not 0 <= top <= _MOST_TOP:
        raise ResultMalformed(f"a rule whose top is {top!r:.40}", f"from 0 to {_MOST_TOP}")
    state = rule.begin(TurnFacts(prompt_length=10, max_tokens=100, temperature=1.0, tools=False))
    steps: list[tuple[bytes, TurnStop | None]] = [(state_json(state), None)]
    for number in range(_TOKENS):
        logprob = -0.1 * (number % 7)
        others = tuple(logprob - 0.25 * place for place in range(top))
        token = SampledToken(number % 5, logprob, others, thinking=number < _TOKENS // 2)
        state, stop = checked_step(rule.step(state, token))
        steps.append((state_json(state), stop))
    return steps
