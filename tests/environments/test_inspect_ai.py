"""Samples of Inspect: its solvers ask the policy, and its scores are rewards."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentUnusable, EpisodeFailed
from seamlessflow.producers.agents.environments.listing import write_tasks
from tests.builders.policy_server import called
from tests.environments.episodes import Ended, RunningEnvironment, installed, running

FILE = Path(__file__).parent / "programs" / "inspect_sums.py"
ADD = called("add", a=2, b=3)
FIVE = {"content": "The sum is 5"}
Listed = list[dict[str, Any]]


def settings(name: str, **more: object) -> dict[str, object]:
    return {"task": f"{FILE}@{name}", **more}


def listed(logs: Path, chosen: dict[str, object]) -> Listed:
    """Return the tasks that the package lists."""
    file = logs / "listed.jsonl"
    asyncio.run(write_tasks(installed("inspect_ai", chosen, logs), file, print))
    return [json.loads(line) for line in file.read_text().splitlines()]


@contextmanager
def evaluated(logs: Path, name: str, **more: object) -> Iterator[tuple[RunningEnvironment, Listed]]:
    """Yield the process of a task, and the tasks that it lists."""
    chosen = settings(name, **more)
    tasks = listed(logs, chosen)
    with running(installed("inspect_ai", chosen, logs)) as environment:
        yield environment, tasks


def ended(logs: Path, name: str, *answers: Any, **more: object) -> Ended:
    """Return the end of a task's first sample."""
    with evaluated(logs, name, **more) as (environment, tasks):
        return environment.run(tasks[0], *answers)


def test_samples_are_listed_by_their_ids_with_scalar_metadata(tmp_path: Path) -> None:
    first, second = listed(tmp_path, settings("sums"))
    assert (first["id"], second["id"]) == ("sums-1", "sums-second")
    assert (first["metadata"], second["metadata"]) == (
        {"task": "sums", "level": "1"},
        {"task": "sums"},
    )


def test_scores_are_rewards_and_refusals_fail_after_a_single_call(tmp_path: Path) -> None:
    with evaluated(tmp_path, "sums", reward="match", max_tokens=99) as (environment, tasks):
        right = environment.run(tasks[0], ADD, FIVE)
        wrong = environment.run(tasks[1], FIVE)
        refused = [environment.run(tasks[0], status) for status in (503, 429, 409)]
        other = environment.run({**tasks[0], "digest": "another"})
    rewards = {"match": 1.0, "includes": 1.0}
    assert right.result == {"reward": 1.0, "rewards": rewards, "status": "complete"}
    assert [request["max_tokens"] for request in right.requests] == [99, 99]
    assert right.requests[1]["messages"][-1]["content"] == "5"
    assert wrong.result["reward"] == 0.0
    assert [len(end.requests) for end in refused] == [1, 1, 1]
    assert [end.result.infrastructure for end in refused] == [True, True, False]
    assert isinstance(other.result, EpisodeFailed)
    assert "another sample than when it was listed" in str(other.result)


def test_a_sample_beyond_the_policys_limit_is_truncated(tmp_path: Path) -> None:
    arguments = {"messages": 3}
    end = ended(tmp_path, "sums", ADD, FIVE, reward="match", arguments=arguments)
    assert end.result["status"] == "truncated"


def test_values_of_a_score_are_numbers_and_others_are_failures(tmp_path: Path) -> None:
    rewards = [
        (0.25, {"valued": 0.25}),
        ("P", {"valued": 0.5}),
        ({"style": "C"}, {"valued.style": 1.0}),
    ]
    failures = [
        ("rather good", "rather good"),
        (float("nan"), "gave no score"),
        ({"a": 1, "b": 0}, "settings.reward names one of the scores: valued.a, valued.b"),
    ]
    values = [value for value, _ in (*rewards, *failures)]
    with evaluated(tmp_path, "scored", arguments={"values": values}) as (environment, tasks):
        results = [environment.run(task, FIVE).result for task in tasks]
    for result, (_, numbers) in zip(results[:3], rewards, strict=True):
        assert result["rewards"] == numbers
        assert result["reward"] == next(iter(numbers.values()))
    for result, (_, words) in zip(results[3:], failures, strict=True):
        assert isinstance(result, EpisodeFailed)
        assert words in str(result)


@pytest.mark.parametrize(
    ("name", "words"),
    [("graded", "No model specified"), ("slow", "the sample ended by its limit: time")],
)
def test_a_sample_that_ends_for_its_environments_reasons_is_a_failure(
    tmp_path: Path, name: str, words: str
) -> None:
    end = ended(tmp_path, name, FIVE)
    assert isinstance(end.result, EpisodeFailed)
    assert words in str(end.result)
    assert not end.result.infrastructure


@pytest.mark.parametrize(
    ("sandbox", "words"), [("docker", "'docker' is"), ("local", "settings.local")]
)
def test_a_sandbox_is_refused_by_name(tmp_path: Path, sandbox: str, words: str) -> None:
    with pytest.raises(EnvironmentUnusable, match=words):
        listed(tmp_path, settings("contained", arguments={"sandbox": sandbox}))


def test_tools_may_run_without_isolation_if_that_is_wanted(tmp_path: Path) -> None:
    chosen = settings("contained", arguments={"sandbox": "local"}, local=True)
    assert len(listed(tmp_path, chosen)) == 2
