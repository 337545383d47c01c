"""A run that explores first needs workers of both kinds, and groups of what it trains."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.callables import simulation_faults
from seamlessflow.checks.combinations import exploration_faults
from seamlessflow.config_file import as_written, parse

EXPLORE = {"name": "explore", "samples": 8, "best": 2, "worst": 2}
WORKERS = [
    {"id": "w0", "tags": ["rollout", "train", "exact"]},
    {"id": "w1", "tags": ["rollout", "cheap"]},
]
VALUES: dict[str, Any] = {
    "policy": {"model": Path("base")},
    "run": {"group_size": 4},
    "pacing": {"tasks": "tasks.jsonl", "sampler": EXPLORE},
    "workers": WORKERS,
}


def faults(**changes: Any) -> list[str]:
    config = parse({**VALUES, **changes})
    return [fault.line(as_written) for fault in exploration_faults(config)]


def pacing(**changes: Any) -> dict[str, Any]:
    return {**VALUES["pacing"], **changes}


def test_a_run_with_cheap_and_exact_workers_explores() -> None:
    assert faults() == []


@pytest.mark.parametrize("tag", ["cheap", "exact"])
def test_a_kind_of_worker_that_is_missing_is_named_with_its_tag(tag: str) -> None:
    workers = [worker for worker in WORKERS if tag not in worker["tags"]]
    (line,) = faults(workers=workers)
    assert line.startswith("workers: ")
    assert f"no worker with the tag {tag} rolls out" in line


@pytest.mark.parametrize(
    ("policy", "missing"), [("colocated", "cheap"), ("disaggregated", "exact")]
)
def test_a_worker_that_the_strategy_never_lets_roll_out_does_not_count(
    policy: str, missing: str
) -> None:
    (line,) = faults(scheduler={"policy": policy})
    assert f"the tag {missing} rolls out under scheduler.policy {policy}" in line


def test_a_worker_of_both_kinds_would_train_what_is_cheap() -> None:
    both = {"id": "w2", "tags": ["rollout", "cheap", "exact"]}
    (line,) = faults(workers=[*WORKERS, both])
    assert line.startswith("workers[2].tags: w2 has the tags cheap and exact")


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"run": {"group_size": 8}}, "run.group_size: "),
        ({"pacing": pacing(redundancy=1)}, "pacing.redundancy: "),
        ({"pacing": pacing(terms={"name": "by_success"})}, "pacing.terms.name: "),
        ({"pacing": pacing(sampler={**EXPLORE, "samples": 3})}, "pacing.sampler.samples: "),
        ({"policies": {"other": {}}}, "pacing.sampler.name: "),
    ],
)
def test_settings_that_do_not_go_with_it_are_refused_by_name(
    changes: dict[str, Any], begins: str
) -> None:
    (line,) = faults(**changes)
    assert line.startswith(begins)


def test_a_simulation_refuses_it_by_name() -> None:
    (line,) = [fault.line(as_written) for fault in simulation_faults(parse(VALUES))]
    assert line.startswith("pacing.sampler.name: explore cannot be simulated")
    without = {**VALUES, "pacing": pacing(sampler={"name": "vade"})}
    assert list(simulation_faults(parse(without))) == []
