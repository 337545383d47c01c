"""Policies that are served and not trained: what a configuration may say of them, and a resume."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.infra.weights.adapter import CONFIG
from seamlessflow.infra.weights.manifest import Manifest, publish
from tests.builders.run_files import changed, faults, model_directory, run_values

JUDGE = "judge"
PAST = {"of": "policy", "every": 5}
TRAINS = {"id": "w0", "tags": ["rollout", "train"]}
SERVES = {"id": "w1", "tags": ["rollout"], "policy": JUDGE}


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return the configuration of a run with a judge, without a fault."""
    monkeypatch.chdir(tmp_path)
    judge = model_directory(tmp_path / JUDGE)
    agents = changed(run_values(tmp_path), "agents", modules={"referee": JUDGE})
    return {
        **agents,
        "workers": [TRAINS, SERVES],
        "policies": {JUDGE: {"frozen": judge}},
    }


def with_judge(values: Mapping[str, Any], **section: Any) -> Mapping[str, Any]:
    return {**values, "policies": {JUDGE: section}}


def test_a_directory_or_past_versions_are_served(values: Mapping[str, Any]) -> None:
    assert faults(values) == ()
    assert faults(with_judge(values, frozen=PAST)) == ()
    shared = [TRAINS, {"id": "w1", "tags": ["rollout", "shared"]}]
    assert faults({**values, "workers": shared}) == ()


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"frozen": PAST, "trainer": {"seed": 1}}, "no trainer reads the section trainer"),
        ({"frozen": PAST, "policy": {"temperature": 0.5}}, "sampled as policy is"),
        ({"frozen": "m", "policy": {"model": "m"}}, "names the model, so leave policy.model out"),
        ({"frozen": {"of": JUDGE}}, "'judge' is none of the policies that are trained: policy"),
        ({"frozen": {"of": "unknown"}}, "'unknown' is none of the policies that are trained"),
        ({"frozen": {"of": "policy", "every": 0}}, "judge.frozen.every: "),
        ({"frozen": {"of": "policy", "evry": 5}}, "did you mean policies.judge.frozen.every?"),
        ({"frozen": {"every": 5}}, "policies.judge.frozen.of: Field required"),
        ({"frozen": 3}, "policies.judge.frozen: Input is not a valid path"),
    ],
)
def test_what_nothing_reads_or_nobody_trains_is_refused(
    values: Mapping[str, Any], section: dict[str, Any], reason: str
) -> None:
    assert reason in "\n".join(faults(with_judge(values, **section)))


def judged_by(values: Mapping[str, Any], policy: str) -> Mapping[str, Any]:
    """Return the run with a judge that is this policy, and no module that it answers."""
    model = {"policy": policy, "prompt": "$answer"}
    agents = changed(values, "agents", modules={})
    return {
        **changed(agents, "trainer", rewards={"reward": 1.0, "right": 0.5}),
        "rewards": {"judges": {"right": {"model": model}}},
    }


def test_a_frozen_policy_judges_in_place_of_a_module(values: Mapping[str, Any]) -> None:
    assert faults(judged_by(values, JUDGE)) == ()


@pytest.mark.parametrize(
    ("policy", "frozen", "reason"),
    [
        ("policy", None, "policy is trained, and a judge stays as it is"),
        ("nobody", None, "nobody is no policy of the run"),
        (JUDGE, PAST, "judge shows past versions of policy, and a judge stays as it is"),
    ],
)
def test_no_other_policy_judges(
    values: Mapping[str, Any], policy: str, frozen: Any, reason: str
) -> None:
    served = values if frozen is None else with_judge(values, frozen=frozen)
    lines = faults(judged_by(served, policy))
    assert any(f"rewards.judges.right.model.policy: {reason}" in line for line in lines)


def test_the_versions_of_another_frozen_policy_are_never_new(values: Mapping[str, Any]) -> None:
    both = {**values["policies"], "rival": {"frozen": {"of": JUDGE}}}
    (line,) = faults({**values, "policies": both})
    assert "policies.rival.frozen.of: 'judge' is none of the policies that are trained" in line


def test_no_worker_trains_it_and_one_serves_it(values: Mapping[str, Any]) -> None:
    trains = {**SERVES, "tags": ["rollout", "train"]}
    (line,) = faults({**values, "workers": [TRAINS, trains]})
    assert "judge is frozen and not trained: leave out the tag train" in line
    (line,) = faults({**values, "workers": [TRAINS]})
    assert "no worker of judge can roll out" in line
    (line,) = faults(changed(values, "agents", modules={}))
    assert "no module is answered by judge" in line


def test_the_first_policy_is_always_trained(values: Mapping[str, Any]) -> None:
    (line,) = faults({**values, "policies": {"policy": values["policies"][JUDGE]}})
    assert "'policy' is run.policy, the first one" in line


def test_its_model_has_to_be_whole(values: Mapping[str, Any], tmp_path: Path) -> None:
    (line,) = faults(with_judge(values, frozen=tmp_path / "nothing"))
    assert line.startswith("policies.judge.frozen: ")
    (tmp_path / JUDGE / CONFIG).write_text("{}")
    (line,) = faults(values)
    assert line.startswith("policies.judge.frozen: ")
    assert "is an adapter: name a whole model" in line


def test_a_run_goes_on_with_the_same_files_alone(values: Mapping[str, Any], tmp_path: Path) -> None:
    directory = tmp_path / JUDGE

    def fill(draft: Path) -> None:
        shutil.copytree(directory, draft, dirs_exist_ok=True)

    facts = Manifest(policy=JUDGE, version=0, optimizer_step=0, lineage="frozen", dtype="float32")
    publish(tmp_path / "out" / "policies" / JUDGE / "weights", facts, fill, sync=False)
    assert faults(values) == ()
    with (directory / "config.json").open("a") as file:
        file.write("\n")
    (line,) = faults(values)
    assert line.startswith(f"policies.judge.frozen: {directory}: its config.json is not that")


def test_league_needs_the_past_versions_of_one_name(values: Mapping[str, Any]) -> None:
    terms = changed(values, "pacing", terms={"name": "league"})
    (line,) = faults(terms)
    assert line.startswith("pacing.terms.name: no policy shows any: league plays against")
    assert faults(with_judge(terms, frozen=PAST)) == ()
    forking = changed(changed(terms, "agents", forks="playback"), "pacing", forks_live=0.25)
    (line,) = faults(with_judge(forking, frozen=PAST))
    assert line.startswith("pacing.forks_live: groups that go on from ended sessions would play")
    both = {JUDGE: {"frozen": PAST}, "rival": {"frozen": PAST}}
    workers = [TRAINS, SERVES, {**SERVES, "id": "w2", "policy": "rival"}]
    modules = changed(terms, "agents", modules={"referee": JUDGE, "other": "rival"})
    (line,) = faults({**modules, "policies": both, "workers": workers})
    assert "policies judge, rival show past versions" in line


def test_past_versions_are_of_a_directory_that_all_hosts_see(values: Mapping[str, Any]) -> None:
    stored = changed(values, "weights", url="file:///tmp/stored")
    assert faults(stored) == ()
    (line,) = faults(with_judge(stored, frozen=PAST))
    assert "leave out weights.url" in line
