"""Evaluation results: a set's figures, its tasks with their sessions, and their files.

`evaluation.json` has the figures, `tasks.jsonl` beside it a line for each task. Written by
`seamlessflow eval`, read by `seamlessflow eval --compare`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.json_lines import json_lines
from seamlessflow.trainer.data.figures.chances import PASSED, ConfidenceInterval
from seamlessflow.trainer.data.lengths import SessionCost

RESULT = "evaluation.json"
TASKS = "tasks.jsonl"


class EvaluatedTask(NamedTuple):
    """A task with its sessions that counted; without sessions if all were spoilt."""

    task_id: str
    returns: tuple[float, ...]
    costs: tuple[SessionCost, ...] = ()
    """Each session's cost; empty if costs are not known."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "EvaluatedTask":
        """Return the task for which `to_json` gave these values."""
        costs = zip(*(values[name] for name in SessionCost._fields), strict=True)
        returns = tuple(map(float, values["returns"]))
        return cls(values["task_id"], returns, tuple(map(SessionCost._make, costs)))

    def to_json(self) -> dict[str, Any]:
        """Return the task as plain values, a list over its sessions for each figure."""
        costs = {name: [getattr(cost, name) for cost in self.costs] for name in SessionCost._fields}
        return {"task_id": self.task_id, "returns": list(self.returns), **costs}


@dataclass(frozen=True)
class EvaluationResult:
    """An evaluation's figures."""

    reward: float | None
    """Mean terminal reward; None if no session counted."""
    error: float | None
    """The mean's standard error over tasks drawn at random; None for fewer than two tasks."""
    sessions: int
    """Sessions that counted."""
    failed: int
    """Sessions that did not count, tried again or not."""
    missing: int
    """Samples without a session that counted."""
    pass_at: Mapping[int, float] = field(default_factory=dict)
    """Estimated chance, by k, that one session in k on a task returns `success` or more."""
    pass_at_range: Mapping[int, ConfidenceInterval] = field(default_factory=dict)
    """95% confidence interval for each chance."""
    pass_all: Mapping[int, float] = field(default_factory=dict)
    """Estimated chance, by k, that all k sessions on a task return `success` or more."""
    pass_all_range: Mapping[int, ConfidenceInterval] = field(default_factory=dict)
    success: float = PASSED
    """Least return with which a session passes."""
    turns: float | None = None
    """Mean turns in a session that counted."""
    sampled_tokens: float | None = None
    """Mean tokens that the policy sampled in such a session."""
    prompt_tokens: float | None = None
    """Mean prompt tokens in all its turns; each turn counts all that was read before its answer."""
    tasks: tuple[EvaluatedTask, ...] = ()
    """Each task, in the set's order."""

    def figures(self) -> dict[str, Any]:
        """Return all figures as plain values, without the tasks."""
        return {name: value for name, value in asdict(self).items() if name != "tasks"}

    def __str__(self) -> str:
        lost = f"{self.failed} failed, {self.missing} missing"
        if self.reward is None:
            return f"no session counted, {lost}; see the logs of agents and gateway"
        error = f" ± {self.error:.4f}" if self.error is not None else ""
        chances = "".join(f", pass@{k} {chance:.3f}" for k, chance in self.pass_at.items())
        sessions = f"{self.sessions} sessions ({lost})"
        return f"mean reward {self.reward:.4f}{error} over {sessions}{chances}"


class NoResult(SeamlessFlowError):
    """A place without a readable evaluation result."""

    lasting = True

    def __init__(self, place: Path, reason: str) -> None:
        self.place = place
        super().__init__(f"{place}: {reason}")


@dataclass(frozen=True)
class EvaluatedSet:
    """A set's tasks by their ids, and what counts as a success in it."""

    tasks: Mapping[str, EvaluatedTask]
    success: float = PASSED


def write_result(
    directory: Path,
    weights: Mapping[str, object],
    results: Mapping[str, EvaluationResult],
    sampling: Mapping[str, Mapping[str, float]],
    several: bool,
) -> None:
    """Write both files. `several`: figures are by set, not beside the facts about the weights."""
    figures = {
        split: {**result.figures(), "sampling": sampling[split]}
        for split, result in results.items()
    }
    if several:
        written = {**weights, "sets": figures}
    else:
        (only,) = figures.values()
        written = {**weights, **only, "set": next(iter(figures))}
    (directory / RESULT).write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    with (directory / TASKS).open("w", encoding="utf-8") as file:
        for split, result in results.items():
            for task in result.tasks:
                file.write(json.dumps({"set": split, **task.to_json()}) + "\n")


def read_result(place: Path) -> Mapping[str, EvaluatedSet]:
    """Return an evaluation's sets by name. `place`: its directory, or a file there.

    Raises `NoResult`.
    """
    directory = place if place.is_dir() else place.parent
    try:
        figures = json.loads((directory / RESULT).read_text(encoding="utf-8"))
        with (directory / TASKS).open("rb") as lines:
            rows = [json.loads(line.content) for line in json_lines(lines)]
        success = {
            name: float(values["success"])
            for name, values in figures.get("sets", {figures.get("set", ""): figures}).items()
        }
        tasks: dict[str, dict[str, EvaluatedTask]] = {name: {} for name in success}
        for row in rows:
            tasks[row["set"]][row["task_id"]] = EvaluatedTask.from_json(row)
    except OSError as error:
        raise NoResult(directory, f"has no result of `seamlessflow eval`: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoResult(directory, f"its result cannot be read: {error!r}") from error
    return {name: EvaluatedSet(tasks[name], success[name]) for name in success}
