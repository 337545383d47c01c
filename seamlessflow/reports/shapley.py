"""Shapley values for an agent's modules, from the scores of all their combinations. Pure.

Each module is the default one or the tested one, so n modules have 2^n combinations. A module's
value is what its tested form adds to the score, in the mean over all orders in which the modules
are changed. After CapaBench, arXiv 2502.00510. Called by `seamlessflow shapley`.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, variance
from typing import Any

from seamlessflow.infra.errors import SeamlessFlowError

MOST_MODULES = 16
"""More modules have more combinations than runs can try."""
NO_MODULE = "none"
"""Name for the combination without a tested module."""
_SHOWN = 8

Combination = frozenset[str]
"""Modules that are the tested ones; all others are the default ones."""
Scores = Mapping[Combination, Sequence[float]]


class ScoresUnusable(SeamlessFlowError):
    """Scores from which no values can be computed."""

    lasting = True

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"{source}: {reason}")


class CombinationsMissing(SeamlessFlowError):
    """Combinations without a score; each one is needed."""

    lasting = True

    def __init__(self, missing: Sequence[Combination]) -> None:
        self.missing = tuple(missing)
        shown = ", ".join(map(combination_name, missing[:_SHOWN]))
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        super().__init__(f"{len(missing)} combinations have no score: {shown}{more}")


@dataclass(frozen=True, slots=True)
class ModuleValue:
    """A module's value, and its standard error; None if a score was measured once."""

    module: str
    value: float
    error: float | None


@dataclass(frozen=True, slots=True)
class ShapleyValues:
    """Each module's value; together they are `full` minus `empty`."""

    modules: tuple[ModuleValue, ...]
    empty: float
    """Mean score without a tested module."""
    full: float
    """Mean score with all tested modules."""


def combination_name(combination: Combination) -> str:
    """Return a combination as text, such as `action+planning`."""
    return "+".join(sorted(combination)) or NO_MODULE


def shapley_values(scores: Scores) -> ShapleyValues:
    """Return the values for all modules that the scores name.

    A value is a weighted sum of mean scores, so its error follows from theirs. Scores count as
    drawn independently. Raises `ScoresUnusable` and `CombinationsMissing`.
    """
    modules = sorted(frozenset().union(*scores))
    if not 0 < len(modules) <= MOST_MODULES:
        raise ScoresUnusable("scores", f"of {len(modules)} modules, not of 1 to {MOST_MODULES}")
    every = list(_combinations(modules))
    if missing := [combination for combination in every if not scores.get(combination)]:
        raise CombinationsMissing(missing)
    means = {combination: fmean(scores[combination]) for combination in every}
    values = tuple(_value(module, modules, means, scores) for module in modules)
    return ShapleyValues(values, means[frozenset()], means[frozenset(modules)])


def _combinations(modules: Sequence[str]) -> Iterator[Combination]:
    for size in range(len(modules) + 1):
        yield from map(frozenset, combinations(modules, size))


def _value(
    module: str, modules: Sequence[str], means: Mapping[Combination, float], scores: Scores
) -> ModuleValue:
    weights = {each: _weight(module, each, len(modules)) for each in means}
    value = math.fsum(weights[each] * means[each] for each in means)
    if any(len(scores[each]) < 2 for each in means):
        return ModuleValue(module, value, None)
    squares = (weights[each] ** 2 * variance(scores[each]) / len(scores[each]) for each in means)
    return ModuleValue(module, value, math.sqrt(math.fsum(squares)))


def _weight(module: str, combination: Combination, count: int) -> float:
    """Return the weight that a combination's score has in a module's value.

    It is a share among all orders: the combination's other modules come before the module, and the
    rest behind it.
    """
    others = len(combination - {module})
    share = 1 / (count * math.comb(count - 1, others))
    return share if module in combination else -share


def read_scores(source: str, text: str) -> tuple[dict[Combination, list[float]], int]:
    """Return the scores by combination, and how many rows have none.

    A row has `modules` and `score`, in CSV or as a JSON object a line. It may also be an exported
    session: then its metadata has `modules`, and `reward` is the score. Raises `ScoresUnusable`.
    """
    scores: dict[Combination, list[float]] = {}
    unscored = 0
    for number, row in _rows(source, text):
        try:
            score = _score(row)
            combination = _combination(row)
        except ValueError as error:
            raise ScoresUnusable(f"{source}:{number}", f"{error}") from error
        if score is None:
            unscored += 1
            continue
        scores.setdefault(combination, []).append(score)
    return scores, unscored


def _rows(source: str, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = text.splitlines()
    if source.endswith(".csv"):
        reader = csv.DictReader(lines)
        for row in reader:
            yield reader.line_num, row
        return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ScoresUnusable(f"{source}:{number}", f"no JSON: {error}") from error
        if not isinstance(row, dict):
            raise ScoresUnusable(f"{source}:{number}", "a line is a JSON object")
        yield number, row


def _score(row: Mapping[str, Any]) -> float | None:
    """Return a row's score, or None if its session was not judged. Raises `ValueError`."""
    score = row.get("score", row.get("reward"))
    if score is None and "reward" in row:
        return None
    try:
        number = float(score)
    except (TypeError, ValueError):
        raise ValueError(f"score is {score!r:.80}, not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"score is {number}")
    return number


def _combination(row: Mapping[str, Any]) -> Combination:
    """Return a row's tested modules. Raises `ValueError`."""
    modules = row.get("modules")
    if modules is None and isinstance(row.get("metadata"), str):
        metadata = json.loads(row["metadata"])
        modules = metadata.get("modules") if isinstance(metadata, dict) else None
    if isinstance(modules, str):
        modules = [] if modules.strip() == NO_MODULE else modules.replace("+", " ").split()
    if not isinstance(modules, list) or not all(isinstance(name, str) for name in modules):
        raise ValueError("it names no modules, as in planning+action or none")
    return frozenset(modules)


def lines(values: ShapleyValues) -> Iterable[str]:
    """Yield what the terminal shows."""
    width = max(len(module.module) for module in values.modules)
    for module in values.modules:
        error = "" if module.error is None else f" ± {module.error:.4f}"
        yield f"{module.module:<{width}}  {module.value:+.4f}{error}"
    total = math.fsum(module.value for module in values.modules)
    yield f"{'sum':<{width}}  {total:+.4f} = {values.full:.4f} (all) - {values.empty:.4f} (none)"
