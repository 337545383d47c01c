"""Errors that stay until they are mended end a run, also when its processes were ready."""

import pytest

from infra.errors import SeamlessFlowError
from producers.agents.harness.loading import CallableNotFound
from producers.rollout.engine.errors import ModelUnsupported
from producers.rollout.engines import WeightsUnsupported
from producers.rollout.roles.device import TruncationUnsupported
from producers.rollout.roles.moves import PublishedWeights
from scheduler.decisions.strategies.registry import UnknownStrategy
from seamlessflow.config import RestartsSection
from seamlessflow.processes.restarts import EndRun, after_end
from trainer.backends.backend import ModelUnusable
from trainer.metrics.library import SinkUnavailable
from trainer.recovery.checkpoint import CheckpointForeign
from trainer.recovery.resume import StepNotRecorded
from trainer.steps.first_weights import WeightsDirectoryInUse

LASTING = [
    CallableNotFound("module:function", "there is no module"),
    CheckpointForeign("checkpoints", "one", "other"),
    ModelUnsupported("qwen3", "KV of one turn does not fit"),
    ModelUnusable("model", "has no tokenizer.json"),
    SinkUnavailable("trainer.wandb", "wandb"),
    StepNotRecorded(3, 2),
    TruncationUnsupported("policy"),
    UnknownStrategy("strategy", "there is none"),
    WeightsDirectoryInUse("weights"),
    WeightsUnsupported(PublishedWeights(1, "weights", "0" * 64), "kind delta cannot be loaded"),
]


@pytest.mark.parametrize("error", LASTING, ids=lambda one: type(one).__name__)
def test_a_process_that_was_ready_is_not_started_again_for_it(error: SeamlessFlowError) -> None:
    status = error.process_status(ready=True)
    assert isinstance(after_end(status, [], 0, RestartsSection()), EndRun)
