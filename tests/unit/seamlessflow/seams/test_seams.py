"""Functions of the user's own that a configuration names, by the seam that calls them."""

from pathlib import Path
from typing import Any

from seamlessflow.config_file import parse
from seamlessflow.seams.listing import listed_methods
from seamlessflow.seams.seams import (
    ADVANTAGE,
    AGGREGATION,
    CONTROL,
    FILTER,
    STRATEGY,
    SURROGATE,
    named_functions,
)
from tests.builders.run_files import run_values


def named(tmp_path: Path, **changes: Any) -> list[tuple[Any, ...]]:
    config = parse({**run_values(tmp_path), **changes})
    return [
        (function.seam, ".".join(map(str, function.path)), function.name, dict(function.settings))
        for function in named_functions(config)
    ]


def test_a_run_of_the_release_s_methods_names_none(tmp_path: Path) -> None:
    assert named(tmp_path) == []


def test_each_seam_may_name_one_with_settings_of_its_own(tmp_path: Path) -> None:
    trainer = {
        "advantage": "mine:credit",
        "filters": {"untrainable": "drop", "mine:easy": "count"},
        "functions": {"mine:easy": {"above": 0.9}},
        "loss": {"surrogate": "mine:loss", "aggregation": "mine:sums"},
    }
    scheduler = {"policy": "mine:roles", "functions": {"mine:roles": {"kept": ["w1"]}}}
    rollout = {"control": {"name": "mine:rule", "settings": {"below": -3.0}}}
    assert named(tmp_path, trainer=trainer, scheduler=scheduler, rollout=rollout) == [
        (ADVANTAGE, "trainer.advantage", "mine:credit", {}),
        (FILTER, "trainer.filters", "mine:easy", {"above": 0.9}),
        (SURROGATE, "trainer.loss.surrogate", "mine:loss", {}),
        (AGGREGATION, "trainer.loss.aggregation", "mine:sums", {}),
        (STRATEGY, "scheduler.policy", "mine:roles", {"kept": ["w1"]}),
        (CONTROL, "rollout.control.name", "mine:rule", {"below": -3.0}),
    ]


def test_the_list_has_each_method_with_its_settings_and_its_paper() -> None:
    listed = {
        seam: {method.name: method for method in methods} for seam, methods in listed_methods()
    }
    grpo = listed[ADVANTAGE]["grpo"]
    assert grpo.meaning.startswith("(r - mean) / (deviation of the group + epsilon)")
    assert grpo.source == "arXiv 2402.03300"
    assert grpo.settings == {
        "trainer.returns.epsilon": 1e-6,
        "trainer.returns.deviation": "population",
    }
    assert listed[ADVANTAGE]["gae"].source == "arXiv 1506.02438"
    assert "trainer.loss.clip_low" in listed[SURROGATE]["gspo"].settings
    assert {"multiplexed", "adaptive"} < listed[STRATEGY].keys()
    assert all(method.meaning for methods in listed.values() for method in methods.values())
