"""A step that cannot be trained ends the trainer and its training process for good."""

from contextlib import closing
from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, FLEET, TRAJECTORIES
from tests.builders.own_topics import small
from tests.builders.trainer.models import bandit, write_tiny
from tests.builders.trainer.recorded_sessions import record_sessions
from tests.builders.trainer.scripted_scheduler import ScriptedScheduler, environment
from tests.builders.trainer.trainer_processes import TrainerProcesses


@pytest.mark.slow
def test_a_step_whose_gradient_is_not_finite_ends_both_processes_for_good(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """The first step moves the weights out of the range of numbers, so the second one fails."""
    create_topics(kafka, small(CONTROL, FLEET, TRAJECTORIES))
    model = write_tiny(tmp_path)
    with closing(ScriptedScheduler(kafka)) as scheduler:
        record_sessions(kafka, bandit(model, 24, 6))
        far = environment(kafka, model, tmp_path / "data", TRAINER__OPTIMIZER__LR=1e30)
        with TrainerProcesses(far) as processes:
            assert processes.wait() == [ExitStatus.LASTING] * 2
            said = processes.said()
        scheduler.wait_for(lambda: bool(scheduler.records(r.StepCompleted)))
        committed = [commit.step for commit in scheduler.records(r.StepCommitted)]
    assert "ended: step 2 is not committed: the gradient of loss ppo_clip is not finite" in said
    assert "lower trainer.optimizer.lr" in said
    assert committed == [0]
