"""Contract for rules that end a turn early, the check on what one returns, and its trial. Pure.

A rule sees a turn's sampled tokens, each once and in order. So only the tokens decide its verdict,
however an engine cuts them into chunks and whichever workers sample them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import orjson

from seamlessflow.infra.user_functions import ResultMalformed

MOST_STATE_BYTES = 4096
"""Most bytes in a rule's state as JSON: each record of progress holds it."""
_MOST_REASON = 100
Ends = Literal["turn", "session"]


class TurnFacts(NamedTuple):
    """Facts about a turn before its first token."""

    prompt_length: int
    """Token count of its prompt."""
    max_tokens: int | None
    """Most tokens in its answer, or None if only the context limits it."""
    temperature: float
    """Temperature at which the log-probs are taken."""
    tools: bool
    """True if tools are offered."""


class SampledToken(NamedTuple):
    """A sampled token; its log-probs are those that the engine reports."""

    token_id: int
    logprob: float
    top: Sequence[float]
    """Log-probs of the rule's `top` likeliest tokens there, the likeliest first."""
    thinking: bool
    """True within thinking, but not for the tokens that begin and end it."""


class TurnStop(NamedTuple):
    """The verdict that a turn ends after this token."""

    reason: str
    ends: Ends = "turn"
    """`turn` ends only the turn, `session` also its session."""


class TurnRule(Protocol):
    """A rule. Both methods are pure; a state is JSON of at most `MOST_STATE_BYTES`."""

    @property
    def top(self) -> int:
        """Count of likeliest tokens that it needs to see, from 0 to 20."""

    def begin(self, turn: TurnFacts) -> Any:
        """Return the state before the first token."""

    def step(self, state: Any, token: SampledToken) -> tuple[Any, TurnStop | None]:
        """Return the state after a token, and the verdict, or None if the turn goes on."""


def state_json(state: Any) -> bytes:
    """Return a state as JSON, which reads back as the same state. Raises `ResultMalformed`.

    JSON keeps neither tuples nor numbers that are not finite.
    """
    try:
        text = orjson.dumps(state)
    except TypeError as error:
        raise ResultMalformed(f"the state {state!r:.80} ({error})", "JSON") from error
    if len(text) > MOST_STATE_BYTES:
        expected = f"one of at most {MOST_STATE_BYTES}"
        raise ResultMalformed(f"a state of {len(text)} bytes", expected)
    if orjson.loads(text) != state:
        raise ResultMalformed(f"the state {state!r:.80}", "one that JSON keeps (lists, no tuples)")
    return text


def checked_step(result: Any) -> tuple[Any, TurnStop | None]:
    """Return what a user's own rule returned for a token. Raises `ResultMalformed`."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise ResultMalformed(f"{result!r:.80}", "a tuple of the state and a TurnStop or None")
    state, stop = result
    if stop is None:
        return state, None
    if not isinstance(stop, TurnStop) or not isinstance(stop.reason, str) or not stop.reason:
        raise ResultMalformed(f"{stop!r:.80}", "a TurnStop with a reason, or None")
    if stop.ends not in get_args(Ends):
        raise ResultMalformed(f"a TurnStop that ends {stop.ends!r:.40}", "turn or session")
    return state, stop._replace(reason=stop.reason[:_MOST_REASON])


_TOKENS = 48
_MOST_TOP = 20


def try_control(function: Callable[..., TurnRule]) -> list[tuple[bytes, TurnStop | None]]:
    """Call a function for the seam `rollout.control.name`, and its rule for some tokens.

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
