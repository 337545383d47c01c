"""Scorers by name, and the judge that a configuration names: `agents.reward`.

A scorer is a function that compares an answer with a reference. It returns a number from 0 to 1.
For a reference that it cannot use, it raises `ValueError` instead of returning 0.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from seamlessflow.producers.scorers.mathematics import mathematics
from seamlessflow.producers.scorers.numbers import numeric
from seamlessflow.producers.scorers.programs import unit_tests
from seamlessflow.producers.scorers.structures import json_schema
from seamlessflow.producers.scorers.texts import choice, exact


class Scorer(Protocol):
    """Function that compares an answer with a reference."""

    def __call__(self, answer: str, reference: Any) -> float:
        """Return a number from 0 to 1. Raises `ValueError` for an unusable reference."""
        ...


SCORERS: Mapping[str, Scorer] = {
    "exact": exact,
    "choice": choice,
    "numeric": numeric,
    "math": mathematics,
    "json_schema": json_schema,
    "unit_tests": unit_tests,
}


def scorer(name: str) -> Scorer:
    """Return the scorer with this name. Raises `ValueError`."""
    if name not in SCORERS:
        raise ValueError(f"there is no scorer {name!r}, but {', '.join(SCORERS)}")
    return SCORERS[name]


def judge(task: Mapping[str, Any], result: Any) -> float:
    """Return the score for an agent's result, by the task's `scorer` and `answer`.

    The result is a text, or an object with the text as `answer`. Raises `ValueError` if the task
    names no scorer or has no answer, or if the result has no text.
    """
    text = result.get("answer") if isinstance(result, Mapping) else result
    if not isinstance(text, str):
        raise ValueError(
            f'the agent returned {type(result).__name__}, no text or {{"answer": text}}'
        )
    if "scorer" not in task or "answer" not in task:
        raise ValueError("the task has no scorer and answer, which its judge reads")
    return scorer(str(task["scorer"]))(text, task["answer"])
