"""Several policies in one configuration: sections, workers, directories and processes of each."""

import json
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.config_file import ConfigRejected, parse
from seamlessflow.each_policy import each_frozen, each_policy
from seamlessflow.infra.settings import KafkaSettings, PastSection
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs

VALUES: dict[str, Any] = {
    "out": "out",
    "run": {"policy": "planner"},
    "policy": {"model": "small", "max_context": 512},
    "trainer": {"optimizer": {"lr": 1e-3, "warmup_steps": 3}, "seed": 7},
    "policies": {
        "coder": {"policy": {"model": "large"}, "trainer": {"optimizer": {"lr": 1e-5}}},
    },
    "agents": {"callable": "a:run", "modules": {"code": "coder"}},
    "evaluation": {"tasks": "tasks.jsonl"},
    "workers": [
        {"id": "w0", "tags": ["rollout", "train"]},
        {"id": "w1", "tags": ["rollout", "train"], "policy": "coder"},
    ],
}


def sections(module: str, values: dict[str, Any] = VALUES) -> dict[str, dict[str, Any]]:
    """Return the settings of each process of a module, by the name of the process."""
    context = LaunchContext(KafkaSettings(), 1, {})
    made = ProcessSpecs(parse(values), context)
    specs = [*made.rollouts(), *made.trainers(), made.scheduler(), made.agents()]
    prefix = "SEAMLESSFLOW_"
    return {
        spec.name: {
            name.removeprefix(prefix).lower(): json.loads(text)
            for name, text in spec.environment.items()
            if text.startswith("{")
        }
        for spec in specs
        if spec.module == module
    }


def test_a_further_policy_differs_by_what_its_sections_say() -> None:
    planner, coder = each_policy(parse(VALUES))
    assert (planner.policy.model, coder.policy.model) == (Path("small"), Path("large"))
    assert coder.policy.max_context == 512
    assert (coder.trainer.optimizer.lr, coder.trainer.optimizer.warmup_steps) == (1e-5, 3)
    assert [worker.id for worker in coder.workers] == ["w1"]


def test_each_policy_has_directories_of_its_own_and_evaluations_are_the_first_ones() -> None:
    planner, coder = each_policy(parse(VALUES))
    assert (planner.weights_dir, coder.weights_dir) == (
        Path("out/weights"),
        Path("out/policies/coder/weights"),
    )
    assert coder.trained_dir == Path("out/trained/coder"), "an audit of `trained` finds it"
    assert planner.evaluation.tasks and coder.evaluation.tasks is None


def test_each_policy_has_a_trainer_and_the_processes_of_its_workers() -> None:
    trainers = sections("seamlessflow.trainer") | sections("seamlessflow.trainer.ranks")
    named = {name: section["run"]["policy"] for name, section in trainers.items()}
    assert named == {
        "trainer": "planner",
        "trainer-w0": "planner",
        "trainer.coder": "coder",
        "trainer-w1": "coder",
    }
    ranks = sections("seamlessflow.trainer.ranks").values()
    assert [section["trainer"]["rank"] for section in ranks] == [0, 0]
    assert all(section["run"]["policies"] == ["planner", "coder"] for section in trainers.values())
    assert {
        name: section["rollout"]["policy"]
        for name, section in sections("seamlessflow.producers.rollout").items()
    } == {
        "rollout-w0": "planner",
        "rollout-w1": "coder",
    }


def test_scheduler_and_agents_know_all_policies() -> None:
    (run,) = (section["run"] for section in sections("seamlessflow.scheduler").values())
    assert (run["policy"], run["policies"]) == ("planner", ["planner", "coder"])
    assert sections("seamlessflow.producers.agents")["agents"]["agents"]["modules"] == {
        "code": "coder"
    }


def test_a_frozen_policy_has_its_workers_and_no_trainer() -> None:
    frozen = {"policies": {"coder": {"frozen": "large", "policy": {"temperature": 0.5}}}}
    served = {"id": "w1", "tags": ["rollout"], "policy": "coder"}
    values = {**VALUES, **frozen, "workers": [VALUES["workers"][0], served]}
    (planner,), (coder,) = each_policy(parse(values)), each_frozen(parse(values))
    assert (coder.policy.model, coder.policy.temperature) == (Path("large"), 0.5)
    assert planner.run.policies == coder.run.policies == ("planner",)

    trainers = sections("seamlessflow.trainer", values)
    assert list(trainers) == ["trainer"]
    assert trainers["trainer"]["run"]["frozen"] == {"coder": None}
    rollouts = sections("seamlessflow.producers.rollout", values)
    assert [each["rollout"]["policy"] for each in rollouts.values()] == ["planner", "coder"]


def test_past_versions_are_sampled_as_their_policy_is() -> None:
    past = {"frozen": {"of": "coder", "every": 4}}
    policies = {**VALUES["policies"], "rival": past}
    (rival,) = each_frozen(parse({**VALUES, "policies": policies}))
    assert (rival.policy.model, rival.policy.max_context) == (Path("large"), 512)
    assert rival.run.frozen == {"rival": PastSection(policy="coder", every=4)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"policies": {"planner": {}}}, "is run.policy"),
        ({"policies": {"a b": {}}}, "is no name"),
        ({"run": {"policy": "planner", "policies": ["planner"]}}, "leave it out"),
        ({"run": {"policy": "planner", "frozen": {"coder": None}}}, "leave it out"),
        ({"workers": [{"id": "w", "policy": "writer"}]}, "w is of no policy 'writer'"),
        ({"agents": {"callable": "a:run", "modules": {"x": "writer"}}}, "x is answered by no"),
    ],
)
def test_names_that_do_not_fit_together_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigRejected, match=reason):
        parse({**VALUES, **changes})
