"""Workers of a run: some train, and some roll out under the run's strategy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.check import before_demo, before_recorded_training
from tests.builders.run_files import changed, evaluation, faults, run_values


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return a configuration without a fault, for the working directory."""
    monkeypatch.chdir(tmp_path)
    return run_values(tmp_path)


def test_a_training_needs_a_worker_that_trains(values: Mapping[str, Any]) -> None:
    workers = [{"id": "a", "tags": ["rollout"]}]
    assert faults({**values, "workers": workers}) == (
        "workers: no worker can train: none has the tag train",
    )
    evaluated = changed(values, "evaluation", tasks="tasks.jsonl")
    assert faults({**evaluated, "workers": workers}, evaluation()) == ()


def test_only_a_training_of_recorded_sessions_needs_no_worker_that_rolls_out(
    values: Mapping[str, Any],
) -> None:
    none_to_roll_out = {**values, "workers": [{"id": "a", "tags": ["train"]}]}
    line = "workers: no worker can roll out: none has the tag rollout"
    assert line in faults(none_to_roll_out)
    assert line in faults(none_to_roll_out, before_demo)
    assert line in faults(
        changed(none_to_roll_out, "evaluation", tasks="tasks.jsonl"), evaluation()
    )
    assert faults(none_to_roll_out, before_recorded_training) == ()


@pytest.mark.parametrize(
    ("strategy", "tags", "remedy"),
    [
        ("disaggregated", ["rollout", "train"], ["rollout"]),
        ("colocated", ["rollout"], ["rollout", "train"]),
    ],
)
def test_a_strategy_under_which_no_worker_rolls_out_is_refused(
    values: Mapping[str, Any], strategy: str, tags: list[str], remedy: list[str]
) -> None:
    worker = {"id": "a", "tags": tags}
    alone = changed({**values, "workers": [worker]}, "scheduler", policy=strategy)
    assert f"no worker rolls out under scheduler.policy {strategy}" in str(faults(alone))
    remedied = {**alone, "workers": [worker, {"id": "b", "tags": remedy}]}
    assert faults(remedied) == ()
    evaluated = changed(alone, "evaluation", tasks="tasks.jsonl")
    assert faults(evaluated, evaluation()) == ()
