"""The table of whole runs, which `scripts/test-algorithms` trains, and the files of a run."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.config_file import load, parse
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.step_methods import step_methods
from tests.algorithms.promises import untested, untested_choices, untested_controls
from tests.algorithms.table import RUNS
from tests.algorithms.trail_run import Values, trail_run, write_run


def trained(*names: str) -> list[TrainerSection]:
    places = Path("out"), Path("/nowhere/data"), Path("teacher")
    return [parse(RUNS[name].values(*places)).trainer for name in names]


def test_every_setting_of_an_algorithm_is_in_a_run() -> None:
    assert untested(trained(*RUNS)) == []


def test_every_sampler_and_all_terms_are_in_a_run() -> None:
    places = Path("out"), Path("/nowhere/data"), Path("teacher")
    drawn = {name: parse(run.values(*places)).pacing for name, run in RUNS.items()}
    assert untested_choices(list(drawn.values())) == []
    without = [section for name, section in drawn.items() if name != "srpo"]
    assert "pacing.sampler.name srpo" in untested_choices(without)


ACQUISITION: Values = {"pacing": {"sampler": {"name": "greso"}}}
BUFFER: Values = {"trainer": {"reuse": {"groups": 1, "choice": "newest"}}}
TRAINING: Values = {"trainer": {"loss": {"surrogate": "cispo", "correction": "tis"}}}


def kinds(config: RunConfig) -> set[tuple[str, str]]:
    """Return kind and name of the methods of a run: of its draws, and of its steps."""
    settings = TrainerSettings(run=config.run, policy=config.policy, trainer=config.trainer)
    of_steps = {(method.kind, method.name) for method in step_methods(settings)}
    return {("sampler", f"{config.pacing.sampler.name}"), *of_steps}


@pytest.mark.parametrize("count", range(4))
def test_acquisition_buffer_and_training_are_exchanged_one_by_one(count: int) -> None:
    changes = {
        ("sampler", "greso"): ACQUISITION,
        ("reuse", "newest"): BUFFER,
        ("loss", "cispo+tis"): TRAINING,
    }
    plain = kinds(configured())
    for chosen in combinations(changes, count):
        exchanged = {kind for kind, _ in chosen}
        others = {method for method in plain if method[0] not in exchanged}
        assert kinds(configured(*(changes[name] for name in chosen))) == {*chosen, *others}


def configured(*changes: Values) -> RunConfig:
    merged: dict[str, dict[str, Any]] = {"pacing": {}, "trainer": {}}
    for change in changes:
        for section, values in change.items():
            merged[section] |= values
    return parse(trail_run(Path("out"), Path("/nowhere/data"), merged))


def test_a_run_has_all_three_of_them_exchanged() -> None:
    config = parse(RUNS["greso"].values(Path("out"), Path("/nowhere/data"), Path("teacher")))
    wanted = {("sampler", "greso"), ("reuse", "newest"), ("loss", "cispo+tis")}
    assert wanted <= kinds(config)


def test_every_rule_that_ends_turns_is_in_a_run() -> None:
    places = Path("out"), Path("/nowhere/data"), Path("teacher")
    used = {name: parse(run.values(*places)).rollout.control for name, run in RUNS.items()}
    assert untested_controls(list(used.values())) == []
    without = [section for name, section in used.items() if name != "budget"]
    assert untested_controls(without) == ["rollout.control.name budget"]


@pytest.mark.parametrize(
    ("left_out", "missing"),
    [
        ("distill", "trainer.advantage distill"),
        ("rloo", "trainer.loss.ratio_level turn"),
        ("session_and_turn", "trainer.on_stale wait"),
        ("cloning", "trainer.filters.zero_variance drop"),
        ("gae", "trainer.returns.trace"),
        ("turn_gae", "trainer.critic.model"),
    ],
)
def test_a_run_that_is_missing_is_told_by_what_no_other_has(left_out: str, missing: str) -> None:
    assert missing in untested(trained(*(RUNS.keys() - {left_out})))


def test_a_configuration_is_written_beside_the_directory_of_its_run(tmp_path: Path) -> None:
    updates = {"trainer": {"mini_batches": 2, "epochs": 2, "loss": {"correction": "tis"}}}
    file = write_run(trail_run(tmp_path / "mini-batches", tmp_path, updates))
    assert file == tmp_path / "mini-batches.yaml"
    assert load(file).trainer.updates == 4


def test_sessions_go_on_from_ended_ones_in_each_way_in_a_run() -> None:
    places = Path("out"), Path("/nowhere/data"), Path("teacher")
    configs = [parse(run.values(*places)) for run in RUNS.values()]
    forking = [config for config in configs if config.pacing.forks_live]
    assert {config.agents.forks for config in forking} == {"middle", "playback"}
    assert {bool(config.pacing.forks_predict) for config in forking} == {True, False}
