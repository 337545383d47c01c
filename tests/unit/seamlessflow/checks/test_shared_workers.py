"""Each policy without a rollout worker of its own needs a shared one, which it keeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seamlessflow.checks.check import before_training
from seamlessflow.config import RunConfig

SHARED = {"id": "s1", "tags": ["rollout", "shared"]}
TRAINS = [
    {"id": "t1", "tags": ["train"]},
    {"id": "t2", "tags": ["train"], "policy": "coder"},
]


def worker_faults(workers: Sequence[dict[str, Any]]) -> list[str]:
    """Return the faults of a run with two policies that tell of rollout workers."""
    values = {
        "policy": {"model": Path("base")},
        "policies": {"coder": {}},
        "workers": [*TRAINS, *workers],
    }
    faults = before_training(RunConfig.model_validate(values))
    return [fault.text for fault in faults if "rollout worker" in fault.text]


def test_one_shared_worker_for_two_policies_is_refused_with_the_number_that_is_needed() -> None:
    (reason,) = worker_faults([SHARED])
    assert "policy, coder have no rollout worker of their own" in reason
    assert "share 2, not 1" in reason


def test_a_shared_worker_for_each_policy_is_enough() -> None:
    assert worker_faults([SHARED, {**SHARED, "id": "s2"}]) == []


def test_a_policy_with_a_worker_of_its_own_needs_no_shared_one() -> None:
    worker = {"id": "r1", "tags": ["rollout"], "policy": "coder"}
    assert worker_faults([SHARED, worker]) == []
