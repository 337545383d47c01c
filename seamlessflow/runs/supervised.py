"""Supervised fine-tuning: a file's conversations, through the trainer's steps, without Kafka.

Packing, loss (`cloning`), aggregation, optimizer and back end are the same as in any step. A killed
training goes on from its checkpoint, and ends with the same weights.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seamlessflow.config import RunConfig
from seamlessflow.infra.device_model.model_shape import context_limit, vocabulary_of
from seamlessflow.infra.disk import whole_directory
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.rendering.model_template.discovery import named_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.weights.manifest import sha256
from seamlessflow.processes.locks import only_run
from seamlessflow.runs.conversations import read_conversations
from seamlessflow.trainer.backends.adapter.whole_model import merge
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.loss import LossSection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.inputs import laid_out, step_updates
from seamlessflow.trainer.steps.publication import companions

STATE = "state.json"

OnStep = Callable[[int, int, dict[str, float]], None]
"""Called after each step with its number from 1, the step count, and its metrics."""
OnBegin = Callable[[int, int], None]
"""Called before the first step with the steps behind the checkpoint, and the step count."""


class SupervisedForeign(SeamlessFlowError):
    """A directory with another training's checkpoint."""

    lasting = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        super().__init__(
            f"{directory} is of a training on other data, or with other settings: delete it, or "
            "set out to another directory"
        )


def fine_tune(
    config: RunConfig,
    data: Path,
    epochs: int,
    size: int,
    on_step: OnStep,
    on_begin: OnBegin = lambda *_: None,
) -> Path:
    """Train on the file, `size` conversations a step; return the result's model directory.

    Raises `ConversationsRejected`, `SupervisedForeign`, and errors from renderer and back end.
    """
    model = config.policy.model
    renderer = Renderer.load(model, named_for(model, config.policy.renderer))
    longest = context_limit(model, config.policy.max_context)
    conversations = read_conversations(data, renderer, longest, vocabulary_of(model))
    batches = [
        Batch(
            step,
            tuple(
                Prepared(Group(conversations[place][0].session_id, ()), conversations[place])
                for place in places
            ),
        )
        for step, places in enumerate(_order(conversations, epochs, size, config.trainer.seed))
    ]
    section = _section(config.trainer)
    run = config.run.model_dump() | {"steps": len(batches)}
    settings = TrainerSettings(run=run, policy=config.policy, trainer=section)
    identity = _identity(settings, data, epochs, size)
    with only_run(config.out / "sft"):
        _train(settings, batches, config.out / "sft", identity, on_step, on_begin)
    return config.out / "sft" / "model"


def _train(
    settings: TrainerSettings,
    batches: Sequence[Batch],
    out: Path,
    identity: str,
    on_step: OnStep,
    on_begin: OnBegin,
) -> None:
    backend = TorchBackend(settings.policy.model, settings.trainer)
    settings = laid_out(settings, backend.layout)
    checkpoint = out / "checkpoint"
    done = _resumed(backend, checkpoint, identity)
    backend.acquire()
    on_begin(done, len(batches))
    for batch in batches[done:]:
        (update,) = step_updates(settings, batch, batch.step, batch.step, ())
        metrics = backend.train(update.input) | {"tokens_trained": float(batch.trained())}
        done += 1
        on_step(done, len(batches), metrics)
        if done % settings.trainer.checkpoint_every == 0 or done == len(batches):
            backend.snapshot()
            with whole_directory(checkpoint) as draft:
                backend.save(draft)
                state = {"step": done, "identity": identity}
                (draft / STATE).write_text(json.dumps(state), encoding="utf-8")
    if settings.trainer.adapter.used:
        with whole_directory(out / "adapter") as draft:
            backend.write_weights(draft)
        merge(settings.policy.model, out / "adapter", out / "model")
        return
    with whole_directory(out / "model") as draft:
        for path in companions(settings.policy.model):
            shutil.copyfile(path, draft / path.name)
        backend.write_weights(draft)


def _resumed(backend: TorchBackend, checkpoint: Path, identity: str) -> int:
    """Load the checkpoint, if there is one; return the steps behind it."""
    if not (checkpoint / STATE).is_file():
        backend.load(None, 0)
        return 0
    state: dict[str, Any] = json.loads((checkpoint / STATE).read_bytes())
    if state["identity"] != identity:
        raise SupervisedForeign(checkpoint)
    backend.load(checkpoint, state["step"])
    return int(state["step"])


def _order(
    conversations: Sequence[tuple[Chain, ...]], epochs: int, size: int, seed: int
) -> list[Any]:
    """Return each step's conversations; each epoch has its own order."""
    steps = []
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(conversations)).tolist()
        steps += [order[first : first + size] for first in range(0, len(order), size)]
    return steps


def _section(trainer: TrainerSection) -> TrainerSection:
    """Return the settings to train with the imitation loss, and with no other model."""
    original = trainer.loss
    loss = LossSection(
        surrogate="cloning",
        aggregation=original.aggregation,
        constant_length=original.constant_length,
    )
    alone = {"advantage": "grpo", "kl_penalty": 0.0, "source_prefix": None, "chains": "merged"}
    once = {"mini_batches": 1, "epochs": 1, "mismatch_versions": 0, "tags": ("train",)}
    return trainer.model_copy(update={"loss": loss, **alone, **once})


def _identity(settings: TrainerSettings, data: Path, epochs: int, size: int) -> str:
    """Return a hash over everything that decides the weights."""
    names = {"loss", "optimizer", "dtype", "master_dtype", "compute_dtype", "seed"}
    if settings.trainer.adapter.used:
        names.add("adapter")
    section = settings.trainer.model_dump(mode="json", include=names)
    model = str(settings.policy.model.resolve())
    facts = [
        section,
        model,
        settings.policy.renderer.to_json().decode(),
        sha256(data),
        epochs,
        size,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
