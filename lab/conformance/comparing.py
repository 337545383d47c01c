"""Comparison between two implementations of an environment, step by step. Pure.

Both get the same seeds and the same actions. An action is drawn, by its episode's seed, from the
actions that the environment calls possible. The first difference ends the comparison: after it the
two are in different states, so that everything else differs too. `seamlessflow conform` calls this.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

_SHOWN_CHARACTERS = 400
_SHOWN_ACTIONS = 20


class ComparedState(NamedTuple):
    """An environment's state after its reset, or after an action; all of it is JSON."""

    observation: Any
    actions: Sequence[Any]
    """Actions that are possible now; their order does not count."""
    reward: float = 0.0
    """The action's reward; 0 after the reset."""
    done: bool = False
    """True if the episode is over."""


class ComparedEnvironment(Protocol):
    """An implementation. `reset` and `step` raise `EnvironmentFailed`."""

    @property
    def name(self) -> str:
        """Its name, `module:function`."""

    def reset(self, seed: int) -> ComparedState:
        """Begin an episode."""

    def step(self, action: Any) -> ComparedState:
        """Take an action."""


@dataclass(frozen=True, slots=True)
class EpisodeRules:
    """Rules for an episode, and for which values count as equal."""

    most_steps: int = 1000
    """Steps after which an episode is cut."""
    tolerance: float = 0.0
    """Largest difference between numbers that count as equal."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The first difference between two implementations."""

    seed: int
    step: int
    """Actions before it; 0: it comes right after `reset`."""
    part: str
    """The part that differs: observation, reward, done or actions."""
    values: tuple[Any, Any]
    actions: Sequence[Any]
    """The episode's actions, the newest last."""


@dataclass(slots=True)
class ConformanceResult:
    """The compared episodes, and the first difference, or None if there is none."""

    episodes: int = 0
    """Episodes without a difference."""
    steps: int = 0
    cut: int = 0
    """Episodes that were not over after `most_steps`."""
    difference: StateDifference | None = None


@dataclass(slots=True)
class _Played:
    """An episode under way."""

    seed: int
    actions: list[Any] = field(default_factory=list)


def compare_environments(
    first: ComparedEnvironment,
    second: ComparedEnvironment,
    seeds: Sequence[int],
    rules: EpisodeRules,
) -> ConformanceResult:
    """Play an episode for each seed in both, up to the first difference."""
    result = ConformanceResult()
    for seed in seeds:
        played = _Played(seed)
        for state, other in _states(first, second, played, rules.most_steps):
            part = _different_part(state, other, rules.tolerance)
            if part is not None:
                values = getattr(state, part), getattr(other, part)
                step = len(played.actions)
                result.difference = StateDifference(seed, step, part, values, played.actions)
                return result
            over = state.done
        result.episodes += 1
        result.steps += len(played.actions)
        result.cut += not over
    return result


def _states(
    first: ComparedEnvironment, second: ComparedEnvironment, played: _Played, most_steps: int
) -> Iterator[tuple[ComparedState, ComparedState]]:
    """Yield both states after the reset and after each action, to the episode's end."""
    draw = random.Random(f"actions {played.seed}")  # nosec B311 # repeatable draws
    state = first.reset(played.seed)
    yield state, second.reset(played.seed)
    while not state.done and len(played.actions) < most_steps:
        action = draw.choice(_in_order(state.actions))
        played.actions.append(action)
        state = first.step(action)
        yield state, second.step(action)


def _different_part(state: ComparedState, other: ComparedState, tolerance: float) -> str | None:
    for part in ("observation", "reward", "done"):
        if not _alike(getattr(state, part), getattr(other, part), tolerance):
            return part
    possible = _in_order(state.actions), _in_order(other.actions)
    # After the end no action is taken.
    return "actions" if not state.done and possible[0] != possible[1] else None


def _in_order(actions: Sequence[Any]) -> list[Any]:
    return sorted(actions, key=_text)


def _alike(value: Any, other: Any, tolerance: float) -> bool:
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, int | float) and isinstance(other, int | float):
        return abs(value - other) <= tolerance
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            _alike(inner, other[name], tolerance) for name, inner in value.items()
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(
            _alike(*pair, tolerance) for pair in zip(value, other, strict=True)
        )
    return type(value) is type(other) and bool(value == other)


def lines(result: ConformanceResult, names: tuple[str, str]) -> Iterator[str]:
    """Yield what the terminal shows."""
    if (difference := result.difference) is None:
        yield f"equal: {result.episodes:,} episodes, {result.steps:,} steps"
        if result.cut:
            yield f"{result.cut:,} episodes were not over at the most steps (--steps)"
        return
    where = f"step {difference.step}" if difference.step else "reset"
    yield f"seed {difference.seed}, {where}: {difference.part} differs"
    width = max(map(len, names))
    for name, value in zip(names, difference.values, strict=True):
        yield f"  {name:<{width}}  {_shown(value)}"
    if difference.actions:
        *before, newest = difference.actions
        yield f"  {'action':<{width}}  {_shown(newest)}"
        left_out = "... " if len(before) > _SHOWN_ACTIONS else ""
        newest_ones = ", ".join(map(_shown, before[-_SHOWN_ACTIONS:]))
        yield f"  {'before it':<{width}}  {left_out}{newest_ones or 'none'}"
    yield f"{result.episodes:,} episodes before it are equal"
    yield f"again: --first {difference.seed} --seeds 1"


def _shown(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
