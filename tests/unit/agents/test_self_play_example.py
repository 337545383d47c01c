"""The example of self-play: its configuration, and the roles of its environment."""

import yaml

from seamlessflow.checks.policies import role_faults
from seamlessflow.config import RunConfig
from seamlessflow.producers.agents.environments.inside.textarena import Environment
from tests.paths import ROOT

FOLDER = ROOT / "examples" / "textarena_self_play"


def config() -> RunConfig:
    return RunConfig.model_validate(yaml.safe_load((FOLDER / "run.yaml").read_text()))


def test_a_policy_plays_all_roles_of_the_games() -> None:
    example = config()
    environment = Environment(**example.agents.settings)  # type: ignore[arg-type]
    assert list(example.agents.roles) == environment.roles
    assert set(example.agents.roles.values()) == {example.run.policy}
    assert list(role_faults(example)) == []


def test_its_tasks_are_games_with_a_seed_each() -> None:
    environment = Environment(games=["KuhnPoker-v0"], size=2, seed=7, players=2)
    assert [task["id"] for task in environment.tasks()] == ["KuhnPoker-v0-7", "KuhnPoker-v0-8"]
