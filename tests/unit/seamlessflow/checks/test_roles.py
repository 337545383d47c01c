"""Roles of an episode: what a configuration may say of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders.run_files import changed, faults, model_directory, run_values

BOTH = ["rollout", "train"]


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return the configuration of a run of two policies, each with a role, without a fault."""
    monkeypatch.chdir(tmp_path)
    second = model_directory(tmp_path / "second")
    roles = {"seeker": "policy", "hider": "second"}
    return {
        **changed(run_values(tmp_path), "agents", roles=roles),
        "workers": [
            {"id": "w0", "tags": BOTH},
            {"id": "w1", "tags": BOTH, "policy": "second"},
        ],
        "policies": {"second": {"policy": {"model": second}}},
    }


def test_roles_of_one_policy_and_of_several_are_played(values: Mapping[str, Any]) -> None:
    assert faults(values) == ()
    alone = {**values, "workers": [{"id": "w0", "tags": BOTH}], "policies": {}}
    self_play = changed(alone, "agents", roles={"one": "policy", "two": "policy"})
    assert faults(changed(self_play, "run", groups_per_step=4)) == ()


@pytest.mark.parametrize(
    ("section", "changes", "reason"),
    [
        ("agents", {"roles": {"a b": "policy"}}, "'a b' is no name of letters"),
        ("agents", {"roles": {"seeker": "third"}}, "seeker is played by no policy 'third'"),
        ("run", {"roles": {"seeker": "policy"}}, "run.roles is filled in from agents.roles"),
        ("agents", {"roles": {"hider": "second"}}, "no role is played by policy"),
        ("agents", {"roles": {"seeker": "policy"}}, "no role is played by second"),
        ("agents", {"modules": {"tool": "second"}}, "agents.modules: each role has a session"),
        ("agents", {"reward": "my_agent:run"}, "agents.reward: a judge gets the result of one"),
        ("pacing", {"redundancy": 1}, "pacing.redundancy: is of episodes with one session"),
        ("agents", {"callable": "", "command": ["true"]}, "agents.command: a program has one"),
    ],
)
def test_what_does_not_go_with_roles_is_refused(
    values: Mapping[str, Any], section: str, changes: dict[str, Any], reason: str
) -> None:
    assert reason in "\n".join(faults(changed(values, section, **changes)))


def test_an_evaluation_is_refused(values: Mapping[str, Any], tmp_path: Path) -> None:
    (tmp_path / "held_back.jsonl").write_text('{"id": "other"}\n')
    (line,) = faults(changed(values, "evaluation", tasks="held_back.jsonl"))
    assert "evaluation.tasks: an evaluation has one session an episode" in line


def test_a_batch_has_whole_episodes_of_each_policy(values: Mapping[str, Any]) -> None:
    three = {"seeker": "policy", "guard": "policy", "hider": "second"}
    odd = changed(changed(values, "agents", roles=three), "run", groups_per_step=3)
    (line,) = faults(odd)
    assert "policy plays 2 roles, so its groups come by 2, and 3 is no multiple of that" in line


def test_a_task_names_roles_of_the_run(values: Mapping[str, Any], tmp_path: Path) -> None:
    tasks = [{"id": "1", "roles": ["seeker"]}, {"id": "2", "roles": {"of": "its own"}}]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    assert faults(values) == ()
    tasks.append({"id": "3", "roles": ["seeker", "judge"]})
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    (line,) = faults(values)
    assert "tasks.jsonl, line 3: 'judge' is no role of agents.roles: seeker, hider" in line
