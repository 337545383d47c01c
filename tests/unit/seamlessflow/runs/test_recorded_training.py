from pathlib import Path

from seamlessflow.checks.check import before_recorded_training
from seamlessflow.config_file import parse
from seamlessflow.runs.recorded_training import Recording, configured
from tests.builders.run_files import run_values


def test_workers_only_train_whatever_the_strategy_of_the_run_is(tmp_path: Path) -> None:
    values = {**run_values(tmp_path), "scheduler": {"policy": "colocated"}}
    config = parse(values, check=before_recorded_training)
    settings = configured(config, Recording("again.", "tis.", follow=False))
    assert [worker.tags for worker in settings.workers] == [("train",)]
    assert settings.scheduler.policy == "multiplexed"
    assert (settings.out, settings.trainer.source_prefix) == (tmp_path / "out" / "tis", "again.")
