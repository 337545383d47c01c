"""Tasks of an environment as evaluation sets: other settings, and none that is trained on."""

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.checks.check import before_training
from seamlessflow.config_file import ConfigRejected, evaluated, every_task, parse
from seamlessflow.listed_tasks import on_tasks
from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from seamlessflow.producers.agents.environments.venvs import environment_spec
from seamlessflow.producers.agents.harness.session import AgentSession, SharedHttpClient
from tests.builders.run_files import run_values

LIMIT_S = 120.0
ADAPTER = """
class Environment:
    def __init__(self, size=4, seed=0):
        self.seeds = range(seed, seed + size)

    def tasks(self):
        for seed in self.seeds:
            yield {"id": f"game-{seed}", "seed": seed}

    async def run(self, task, session):
        return 1.0
"""


INDEXED = """
class Environment:
    def __init__(self, part):
        self.part = part
        self.words = []

    def tasks(self):
        for index in range(2):
            yield {"id": f"{self.part}-{index}", "index": index}

    async def warm_up(self):
        self.words = [f"{self.part}-{index}" for index in range(2)]

    async def run(self, task, session):
        return {"reward": float(self.words[task["index"]] == task["id"])}
"""
REFUSING = """
class Environment:
    def __init__(self, server=""):
        raise ValueError(f"no world at {server}")
"""
VALIDATED = """
    def __init__(self, **settings):
        from pydantic import ConfigDict, create_model
        config = ConfigDict(extra="forbid")
        options = create_model("Options", __config__=config, seed=(int, 0))
        create_model("Settings", options=(options, ...))(**settings)
"""
SESSION = AgentSession("s", "http://127.0.0.1:9/v1", "key", "default", 0, {}, SharedHttpClient(1))


@pytest.fixture
def sections(tmp_path: Path) -> Mapping[str, Any]:
    """Return the sections of a run in an environment that counts its seeds."""
    (tmp_path / "game.py").write_text(ADAPTER)
    values = {**json.loads(json.dumps(run_values(tmp_path), default=str))}
    values["agents"] = {"environment": str(tmp_path / "game.py"), "settings": {"size": 4}}
    values.pop("pacing", None)
    return values


def with_sets(sections: Mapping[str, Any], **sets: str) -> dict[str, Any]:
    named = {name: {"tasks": tasks} for name, tasks in sets.items()}
    return {**sections, "evaluation": {"sets": named}}


def ids(file: Path | None) -> list[str]:
    assert file is not None
    return [json.loads(line)["id"] for line in file.read_text().splitlines()]


def test_sets_are_listed_with_settings_of_their_own(sections: Mapping[str, Any]) -> None:
    values = with_sets(sections, near="environment:seed=4&size=2", far="environment:seed=90")
    config = parse(values, read_tasks=every_task)
    assert ids(config.pacing.tasks) == ["game-0", "game-1", "game-2", "game-3"]
    near, far = config.evaluation.files.values()
    assert ids(near) == ["game-4", "game-5"]
    assert ids(far) == [f"game-{seed}" for seed in range(90, 94)]


def test_a_set_of_other_settings_with_tasks_of_the_training_is_refused(
    sections: Mapping[str, Any],
) -> None:
    values = with_sets(sections, near="environment:seed=2&size=9", same="environment:")
    with pytest.raises(ConfigRejected) as refused:
        parse(values, read_tasks=every_task)
    (line,) = refused.value.faults
    assert line.startswith("evaluation.sets.near.tasks: environment:seed=2&size=9: 2 of its 9")
    assert "trained on: choose a seed beyond" in line


def test_a_task_of_another_id_is_the_same_if_it_is_drawn_from_the_same(
    sections: Mapping[str, Any],
) -> None:
    adapter = Path(sections["agents"]["environment"])
    line = 'yield {"id": f"{self.seeds[0]} {seed}", "drawn_from": seed}'
    adapter.write_text(re.sub("yield .*", line, ADAPTER))
    parse(with_sets(sections, beyond="environment:seed=4"), read_tasks=every_task)
    with pytest.raises(ConfigRejected, match="3 of its 4 tasks are trained on"):
        parse(with_sets(sections, near="environment:seed=1"), read_tasks=every_task)


def test_a_task_is_played_with_the_settings_that_it_was_listed_with(
    sections: Mapping[str, Any], tmp_path: Path
) -> None:
    Path(sections["agents"]["environment"]).write_text(INDEXED)
    agents = {**sections["agents"], "settings": {"part": "train"}}
    values = with_sets(
        {**sections, "agents": agents}, other="environment:part=held_back", same="environment:"
    )
    config = parse(values, read_tasks=every_task)
    spec = environment_spec(config.agents, os.environ, tmp_path / "environment.log")
    files = [config.pacing.tasks, *config.evaluation.files.values()]
    lines = [line for file in files for line in Path(str(file)).read_bytes().splitlines()]
    assert len(lines) == 6
    assert asyncio.run(results(spec, lines)) == [{"reward": 1.0}] * 6


def test_nothing_follows_from_tasks_that_a_wrong_setting_leaves_unlisted(
    sections: Mapping[str, Any],
) -> None:
    values = with_sets(sections, far="environment:seed=90")
    values["run"] = {"groupsize": 4}
    with pytest.raises(ConfigRejected) as refused:
        parse(values, check=before_training, read_tasks=every_task)
    (line,) = refused.value.faults
    assert line.startswith("run.groupsize")


@pytest.mark.parametrize(
    ("body", "settings", "words"),
    [
        ("def __init__(self, size): ...", {"sizes": 4}, "settings are sizes"),
        (VALIDATED, {"options": {"sead": 0}}, "options.sead: Extra inputs are not permitted"),
    ],
)
def test_an_environment_that_refuses_its_settings_names_the_wrong_one(
    sections: Mapping[str, Any], body: str, settings: Mapping[str, Any], words: str
) -> None:
    adapter = Path(sections["agents"]["environment"])
    adapter.write_text(f"class Environment:\n    {body}")
    values = with_sets(sections, far="environment:seed=90")
    values["agents"] = {**values["agents"], "settings": settings}
    with pytest.raises(ConfigRejected) as refused:
        parse(values, check=before_training, read_tasks=every_task)
    (line,) = refused.value.faults
    assert words in line


async def results(spec: EnvironmentSpec, tasks: Sequence[bytes]) -> list[object]:
    """Play the tasks at once in one process."""
    agent = EnvironmentAgent(spec, 1, 64, LIMIT_S)
    await agent.begin()
    try:
        async with asyncio.timeout(LIMIT_S):
            return list(await asyncio.gather(*(agent.run(task, SESSION) for task in tasks)))
    finally:
        await agent.close()


def test_an_evaluation_alone_lists_no_tasks_of_the_training(sections: Mapping[str, Any]) -> None:
    values = with_sets(sections, near="environment:seed=2")
    config = parse(on_tasks(values, "environment:seed=7&size=1"), read_tasks=evaluated)
    (listed,) = config.evaluation.files.values()
    assert ids(listed) == ["game-7"]
    assert list(listed.parent.iterdir()) == [listed]


def test_an_evaluation_alone_keeps_what_counts_as_success_and_a_k_that_it_has_samples_for(
    sections: Mapping[str, Any],
) -> None:
    sets = {"near": {"tasks": "environment:seed=9", "samples": 4}}
    for more, passing in (({}, (0.5, ())), ({"samples": 4}, (0.5, (4,)))):
        values = {**sections, "evaluation": {"success": 0.5, "k": [4], "sets": sets, **more}}
        config = parse(on_tasks(values, "environment:seed=7"), read_tasks=evaluated)
        assert config.evaluation.passing("test") == passing


def test_settings_behind_the_option_tasks_reach_the_environment_as_they_are(
    sections: Mapping[str, Any], tmp_path: Path
) -> None:
    Path(sections["agents"]["environment"]).write_text(REFUSING)
    agents = {"environment": "game.py"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**sections, "agents": agents}))
    tasks = "environment:server=http://127.0.0.1:9//world/"
    arguments = ["eval", "--config", str(tmp_path / "run.yaml"), "--tasks", tasks]
    done = CliRunner().invoke(app, arguments)
    assert str(done.exception).endswith("no world at http://127.0.0.1:9//world/")
