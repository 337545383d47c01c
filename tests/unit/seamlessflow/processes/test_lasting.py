"""Errors that stay until they are mended end a run, also when its processes were ready."""

import pytest

from seamlessflow.config import RestartsSection
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.user_functions import FunctionUnusable
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.processes.restarts import EndRun, after_end
from seamlessflow.producers.rollout.engine.errors import ModelUnsupported
from seamlessflow.producers.rollout.engines import WeightsUnsupported
from seamlessflow.producers.rollout.roles.device import TruncationUnsupported
from seamlessflow.scheduler.decisions.strategies.registry import UnknownStrategy
from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.metrics.trackers import SinkUnavailable
from seamlessflow.trainer.recovery.checkpoint import CheckpointForeign
from seamlessflow.trainer.recovery.resume import StepNotRecorded
from seamlessflow.trainer.steps.publication import WeightsDirectoryInUse

LASTING = [
    CheckpointForeign("checkpoints", "one", "other"),
    FunctionUnusable("module:function", "cannot be called: there is no module"),
    ModelUnsupported("qwen3", "KV of one turn does not fit"),
    ModelUnusable("model", "has no tokenizer.json"),
    SinkUnavailable("trainer.wandb", "wandb"),
    StepNotRecorded(3, 2),
    TruncationUnsupported("policy"),
    UnknownStrategy("strategy", "there is none"),
    WeightsDirectoryInUse("weights"),
    WeightsUnsupported(PublishedWeights(1, 1, "weights", "0" * 64), "kind delta cannot be loaded"),
]


@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
def test_a_process_that_was_ready_is_not_started_again_for_it(error: SeamlessFlowError) -> None:
    status = error.process_status(ready=True)
    assert isinstance(after_end(status, [], 0, RestartsSection()), EndRun)
