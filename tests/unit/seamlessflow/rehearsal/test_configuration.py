"""A rehearsal's configuration: the run's own, but for its devices, its directory and its Kafka."""

from pathlib import Path

from infra.settings import KafkaSettings
from seamlessflow.config import RunConfig
from seamlessflow.rehearsal.configuration import rehearsed

CONFIG = RunConfig.model_validate(
    {
        "out": "runs/a",
        "workers": [
            {"id": "w0", "tags": ["rollout"], "device": "cuda", "devices": [0, 1, 2, 3]},
            {"id": "w1", "tags": ["rollout", "train"], "device": "cuda:4"},
        ],
        "run": {"steps": 500},
        "kafka": KafkaSettings(bootstrap_servers="cluster:9092"),
    }
)


def test_devices_are_modelled_and_as_many_as_the_run_has() -> None:
    found = rehearsed(CONFIG)
    assert (found.rollout.engine, found.trainer.backend) == ("clock", "clock")
    assert [(one.device, one.device_count) for one in found.workers] == [(None, 4), (None, 1)]


def test_a_rehearsal_touches_neither_the_directory_nor_the_cluster_of_the_run() -> None:
    found = rehearsed(CONFIG)
    assert found.out == Path("runs/a/rehearsal")
    assert found.kafka is None


def test_steps_scale_and_directory_can_be_chosen_and_all_else_is_as_it_was() -> None:
    found = rehearsed(CONFIG, Path("elsewhere"), steps=8, scale=0.5)
    assert (found.out, found.run.steps, found.device_model.scale) == (Path("elsewhere"), 8, 0.5)
    assert (rehearsed(CONFIG).run, found.pacing, found.agents) == (
        CONFIG.run,
        CONFIG.pacing,
        CONFIG.agents,
    )
