"""Refusals of `seamlessflow render kubernetes`, before it writes a file."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.errors import SeamlessFlowError
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "kubernetes" / "run.yaml"


def render(config: Path, out: Path, *options: str, image: str = "registry.example/a:1") -> Result:
    arguments = ["render", "kubernetes", "--config", str(config), "--out", str(out)]
    return CliRunner().invoke(app, [*arguments, "--image", image, *options])


@pytest.mark.parametrize("option", ["--secret", "--claim", "--strimzi"])
def test_a_name_that_no_object_may_have_is_refused(option: str, tmp_path: Path) -> None:
    result = render(EXAMPLE, tmp_path / "out", option, "Bad_Name")
    assert (result.exit_code, "'Bad_Name' is no name" in result.output) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["my.kafka", "1st", "k" * 48])
def test_a_kafka_that_can_be_no_part_of_a_service_s_name_is_refused(
    name: str, tmp_path: Path
) -> None:
    result = render(EXAMPLE, tmp_path / "out", "--strimzi", name)
    assert (result.exit_code, "services have" in result.output) == (2, True)


def test_an_image_is_one_word(tmp_path: Path) -> None:
    assert render(EXAMPLE, tmp_path, image="two words").exit_code == 2
    digest = "registry.example:5000/team/a@sha256:" + "0" * 64
    assert render(EXAMPLE, tmp_path, image=digest).exit_code == 0


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    result = render(EXAMPLE, taken)
    assert result.exit_code == 2
    assert "nothing can be written" in result.output


@pytest.mark.parametrize(
    ("written", "other", "line"),
    [
        ("ranks: 64", "ranks: 63", "trainer.ranks: "),
        ("ranks: 64", "ranks: 65", "trainer.ranks: "),
        ("replicas: 4", "replicas: 3", "rollout.vllm.replicas: "),
        (
            'agents: {callable: "my.agent:run", concurrency: 256}',
            "",
            "exactly one of agents.callable, agents.command",
        ),
        ("node: host-b", f"node: {'b' * 46}", "node: "),
    ],
)
def test_what_each_node_or_process_would_refuse_is_refused(
    written: str, other: str, line: str, tmp_path: Path
) -> None:
    config = tmp_path / "run.yaml"
    shutil.copy(EXAMPLE, config)
    config.write_text(config.read_text().replace(written, other))
    result = render(config, tmp_path / "out")
    assert isinstance(result.exception, SeamlessFlowError)
    assert line in str(result.exception)
