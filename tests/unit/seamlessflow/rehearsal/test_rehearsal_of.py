"""A rehearsal's configuration: the run's own, but for its devices, its directory and its Kafka."""

from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.rehearsal.rehearsal import rehearsal_of

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
    rehearsal = rehearsal_of(CONFIG)
    assert (rehearsal.rollout.engine, rehearsal.trainer.backend) == ("clock", "clock")
    assert [(worker.device, worker.device_count) for worker in rehearsal.workers] == [
        (None, 4),
        (None, 1),
    ]


def test_a_further_policy_that_names_a_back_end_of_its_own_is_modelled_also() -> None:
    section = {"backend": "fsdp2", "device": "cuda:7", "seed": 3}
    config = RunConfig.model_validate({"policies": {"coder": {"trainer": section}}})
    trainers = [policy.trainer for policy in each_policy(rehearsal_of(config))]
    assert [(trainer.backend, trainer.device) for trainer in trainers] == [("clock", "cpu")] * 2
    assert trainers[1].seed == 3


def test_a_workers_own_variables_name_no_real_engine_or_device() -> None:
    variables = {
        "SEAMLESSFLOW_ROLLOUT__ENGINE": "vllm",
        "SEAMLESSFLOW_TRAINER": '{"backend": "fsdp2", "seed": 3}',
        "SEAMLESSFLOW_DEVICE_MODEL__HARDWARE": "H20",
    }
    worker = {"id": "w0", "tags": ["rollout", "train"], "environment": variables}
    (rehearsed,) = rehearsal_of(RunConfig.model_validate({"workers": [worker]})).workers
    assert rehearsed.environment == variables | {
        "SEAMLESSFLOW_ROLLOUT__ENGINE": "clock",
        "SEAMLESSFLOW_TRAINER__BACKEND": "clock",
    }


def test_a_rehearsal_touches_neither_the_directory_nor_the_cluster_of_the_run() -> None:
    rehearsal = rehearsal_of(CONFIG)
    assert rehearsal.out == Path("runs/a/rehearsal")
    assert rehearsal.kafka is None


def test_steps_scale_and_directory_can_be_chosen_and_all_else_is_as_it_was() -> None:
    rehearsal = rehearsal_of(CONFIG, Path("elsewhere"), steps=8, scale=0.5)
    assert (rehearsal.out, rehearsal.run.steps, rehearsal.device_model.scale) == (
        Path("elsewhere"),
        8,
        0.5,
    )
    assert (rehearsal_of(CONFIG).run, rehearsal.pacing, rehearsal.agents) == (
        CONFIG.run,
        CONFIG.pacing,
        CONFIG.agents,
    )
