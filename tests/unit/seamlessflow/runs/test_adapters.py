"""Adapters outside of a training: chosen for an evaluation, merged, and made by fine-tuning."""

import json
from pathlib import Path
from shutil import copytree

import pytest
import yaml
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.config import RunConfig
from seamlessflow.demo.model import make_model
from seamlessflow.demo.task import LOOKUP, dialogue, make_tasks
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.weights.adapter import CONFIG, AdapterInvalid
from seamlessflow.infra.weights.manifest import WeightsInvalid
from seamlessflow.infra.weights.tensors import tensor_hashes, tensors_hash
from seamlessflow.infra.weights.versions import version_directory
from seamlessflow.inspection.model_directory import incomplete
from seamlessflow.runs.chosen_weights import NoSuchVersion, choose_weights
from seamlessflow.runs.supervised import fine_tune
from seamlessflow.runs.whole_model import write_merged
from tests.builders.engines.adapters import adapter
from tests.builders.trainer.models import write_tiny


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """Return a run of two policies with a model of each its own, and a version 3 of each."""
    model = write_tiny(tmp_path / "model")
    values = {
        "out": tmp_path / "out",
        "run": {"policy": "planner"},
        "policy": {"model": model},
        "trainer": {"adapter": {"rank": 4}},
        "policies": {"coder": {}},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(values, default=str))))
    settings = RunConfig.model_validate(values)
    adapter(model, version_directory(settings.weights_dir, 3), seed=1, version=3)
    coders = settings.out / "policies" / "coder" / "weights"
    adapter(model, version_directory(coders, 3), seed=2, version=3)
    return settings


def test_an_adapter_is_evaluated_on_its_base(config: RunConfig) -> None:
    chosen = choose_weights(config, None, None)
    assert (chosen.version, chosen.step) == (3, 3)
    assert chosen.model == config.policy.model
    assert incomplete(chosen.model) == ""
    assert choose_weights(config, None, config.policy.model).base is None


def test_each_policy_is_merged_into_a_model_of_its_own(config: RunConfig, tmp_path: Path) -> None:
    run = str(tmp_path / "run.yaml")
    ended = CliRunner().invoke(app, ["merge", "--config", run, "--to", str(tmp_path / "one")])
    assert ended.exit_code == 0, ended.output
    write_merged(config, tmp_path / "two", 3, "coder")
    planner, coder, base = (tensor_hashes(tmp_path / name) for name in ("one", "two", "model"))
    assert planner.keys() == coder.keys() == base.keys()
    changed = {name for name in base if planner[name] != base[name]}
    assert changed == {name for name in base if coder[name] != base[name]}
    assert {name.rpartition("_proj")[0].rpartition(".")[2] for name in changed} == {"q", "down"}
    assert all(planner[name] != coder[name] for name in changed)
    assert incomplete(tmp_path / "one") == ""


def test_what_cannot_be_merged_is_refused_and_nothing_is_written(
    config: RunConfig, tmp_path: Path
) -> None:
    to = tmp_path / "merged"
    with pytest.raises(NoSuchVersion):
        write_merged(config, to, 7, None)
    with pytest.raises(SettingsRejected, match="planner, coder"):
        write_merged(config, to, None, "critic")
    with pytest.raises(SettingsRejected, match="exists"):
        write_merged(config, tmp_path, None, None)
    version = version_directory(config.weights_dir, 3)
    kept = (version / CONFIG).read_text()
    (version / CONFIG).write_text(kept.replace('"r": 4', '"r": 8'))
    with pytest.raises(WeightsInvalid, match=CONFIG):
        write_merged(config, to, None, None)
    (version / CONFIG).write_text(kept)
    write_tiny(config.policy.model, seed=1)
    with pytest.raises(AdapterInvalid, match="other tensors"):
        write_merged(config, to, None, None)
    whole = config.model_copy(update={"out": tmp_path / "none"})
    with pytest.raises(AdapterInvalid, match="whole model"):
        write_merged(whole, to, None, None)
    assert not to.exists()


def test_fine_tuning_of_an_adapter_writes_a_whole_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    make_model(model, seed=0)
    before = copytree(model, tmp_path / "before")
    rows = [{"messages": dialogue(task), "tools": [LOOKUP]} for task in make_tasks(16, 0, "train")]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RunConfig(
        out=tmp_path / "out",
        policy={"model": model, "max_context": 512, "renderer": {"name": "qwen3"}},
        trainer={
            "adapter": {"rank": 4},
            "optimizer": {"lr": 1e-2},
            "device": "cpu",
            "threads": 1,
        },
    )
    losses: list[float] = []
    directory = fine_tune(
        config, data, 6, 16, lambda *arguments: losses.append(arguments[2]["loss"])
    )
    assert losses[-1] < losses[0] * 0.9
    assert incomplete(directory) == ""
    assert tensor_hashes(directory).keys() == tensor_hashes(before).keys()
    assert tensors_hash(directory) != tensors_hash(before)
    assert tensors_hash(model) == tensors_hash(before)
