"""The command `seamlessflow settings`."""

import re

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.config import RunConfig


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["settings", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def paths(text: str) -> list[str]:
    return re.findall(r"^(\S+)  \(", text, re.MULTILINE)


def test_the_overview_has_a_line_for_each_section() -> None:
    text = said()
    for name, field in RunConfig.model_fields.items():
        line = rf"^{name} +(\d+|a) settings?  {re.escape(str(field.description))}$"
        assert re.search(line, text, re.MULTILINE), name
    assert CliRunner().invoke(app, ["train", "--settings"]).output == text


def test_a_section_is_explained_by_its_paths_in_yaml() -> None:
    text = said("trainer.loss")
    assert all(path.startswith("trainer.loss.") for path in paths(text))
    assert "trainer.loss.clip_high" in paths(text)
    assert {"workers[].id", "workers[].tags"} <= set(paths(said("workers")))
    assert "evaluation.sets.NAME.tasks" in paths(said("evaluation.sets"))
    assert paths(said("run.steps")) == ["run.steps"]


def test_a_word_finds_settings_by_path_and_meaning() -> None:
    matches = paths(said("Temperature"))
    assert {"policy.temperature", "evaluation.sampling.temperature"} <= set(matches)
    assert "kafka.session_timeout_s" in paths(said("heartbeat"))


def test_all_settings_are_explained_once() -> None:
    every = paths(said("--all"))
    assert len(every) == len(set(every)) > 300
    assert {"kafka.bootstrap_servers", "policies.NAME.trainer", "trainer.critic.model"} <= set(
        every
    )
    assert not [path for path in every if path.startswith("policies.NAME.trainer.")]


@pytest.mark.parametrize(("word", "meant"), [("temperatrue", "temperature"), ("qqqqqqqq", "")])
def test_a_word_that_no_setting_has_is_refused_with_the_nearest(word: str, meant: str) -> None:
    done = CliRunner().invoke(app, ["settings", word])
    assert done.exit_code == 2
    assert f"no setting has '{word}'" in done.output
    assert meant in done.output
