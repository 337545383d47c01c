"""Configuration of the demo with a real model."""

import os
from pathlib import Path

import pytest

from seamlessflow.config_file import ConfigRejected
from seamlessflow.demo.configuration import sums_config
from seamlessflow.demo.model import make_model


def test_a_worker_takes_both_roles(tmp_path: Path) -> None:
    make_model(tmp_path / "model", seed=0)
    config = sums_config(tmp_path / "out", str(tmp_path / "model"), steps=3, seed=7)
    (worker,) = config.workers
    assert worker.tags == ("rollout", "train")
    assert config.run.steps == 3
    assert config.trainer.seed == config.pacing.seed == 7
    assert config.pacing.tasks == tmp_path / "out" / "tasks" / "train.jsonl"


def test_a_directory_without_a_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigRejected, match=r"policy\.model: .*nowhere"):
        sums_config(tmp_path / "out", str(tmp_path / "nowhere"), steps=1, seed=0)
    assert os.listdir(tmp_path) == []
