"""verifiers: rollouts of the installed package in real sessions, with tools and without."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentUnusable, EpisodeFailed
from tests.agents.agent_system import AgentSystem, same_tokens
from tests.e2e.running_system import RunningSystem
from tests.environments.checks import SCRIPTS, TINY, Row, one_chain, row
from tests.environments.playing import PROGRAMS, Package, installed

PATH = {"path": [str(PROGRAMS)]}
SUMS: Mapping[str, Any] = {"taskset": {"id": "sums_set"}, **PATH}
ENDLESS: Mapping[str, Any] = {"taskset": {"id": "endless_set"}, **PATH}
FIRST_TWO = {"select": {"limit": 2}}


@pytest.fixture(scope="module")
def sums(
    acting: AgentSystem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Package, list[dict[str, Any]]]]:
    """Yield the task set with a tool, ready to be played, and its tasks."""
    directory = tmp_path_factory.mktemp("sums")
    with installed("verifiers", SUMS, acting.running, directory) as package:
        tasks = package.tasks(directory)
        package.begin()
        yield package, tasks


def test_the_log_has_the_tokens_of_a_rollout_with_a_tool_in_a_chain(
    acting: AgentSystem, sums: tuple[Package, list[dict[str, Any]]], rows: list[Row]
) -> None:
    package, (task, *_) = sums
    before = len(acting.sampled(0))
    episode = package.play(task)
    one_chain(episode)
    same_tokens(episode.trajectory, acting.sampled(before))
    assert episode.result == {
        "reward": 1.5,
        "rewards": {"right": 1.0, "short": 0.5, "turns": 2.0},
        "status": "complete",
    }
    rows.append(row(package, "a tool of its own server", SCRIPTS, episode))


def test_a_wrong_answer_has_the_reward_that_verifiers_gives(
    sums: tuple[Package, list[dict[str, Any]]],
) -> None:
    package, (_, task, _) = sums
    assert package.play(task).result["rewards"] == {"right": 0.0, "short": 0.5, "turns": 2.0}


def test_a_scorer_that_raises_is_a_failure_and_no_reward(
    sums: tuple[Package, list[dict[str, Any]]],
) -> None:
    package, (_, _, broken) = sums
    error = package.fail(broken)
    assert isinstance(error, EpisodeFailed)
    assert "TaskError" in str(error)
    assert "the scorer is broken" in str(error)
    assert not error.infrastructure


def test_a_task_that_is_gone_is_named(sums: tuple[Package, list[dict[str, Any]]]) -> None:
    package, _ = sums
    assert "sums_set no longer has the task x" in str(package.fail({"id": "x"}))


def test_a_gateway_that_fails_is_the_infrastructures_doing(
    sums: tuple[Package, list[dict[str, Any]]],
) -> None:
    package, (task, *_) = sums
    with package.failing_gateway():
        error = package.fail(task)
    assert isinstance(error, EpisodeFailed)
    assert error.infrastructure, error


def test_the_log_has_the_tokens_of_a_model_that_answers(
    sampling: RunningSystem, tmp_path: Path, rows: list[Row]
) -> None:
    settings = {**ENDLESS, **FIRST_TWO, "agent": {"sampling": {"max_tokens": 24}}}
    with installed("verifiers", settings, sampling, tmp_path) as package:
        tasks = package.tasks(tmp_path)
        package.begin()
        episodes = [package.play(task) for task in tasks]
    assert len(episodes) == 2
    one_chain(*episodes)
    assert {episode.result["status"] for episode in episodes} == {"truncated"}
    rows.append(row(package, "questions", TINY, *episodes))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "endless_set has tasks without end: set `select: {limit: 1000}`"),
        ({"agent": {"retries": {"max_retries": 1}}}, "agent.retries is refused"),
        ({"agent": {"runtime": {"type": "prime"}}}, "agent.runtime prime is refused"),
        ({"id": "user_sim"}, r"\['assistant', 'user'\] cannot all be the policy"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_by_name(
    sampling: RunningSystem, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with (
        installed("verifiers", {**ENDLESS, **settings}, sampling, tmp_path) as package,
        pytest.raises(EnvironmentUnusable, match=words),
    ):
        package.tasks(tmp_path)
