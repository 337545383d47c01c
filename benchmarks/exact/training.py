"""Training on small sums, with the exact ids or with a variant, in this process.

The torch engine's batching samples; batch, advantages, loss and update are the trainer's. A run
follows from its seed, so runs with one seed see equal tasks and, in their first step, equal
answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from benchmarks.exact.encodings import parts
from benchmarks.exact.tasks import sums
from benchmarks.exact.variants import Answer, Variant, encoded_again, recomputed
from benchmarks.learning.methods import GROUP_SIZE, GROUPS
from benchmarks.learning.sampler import Completion, Prompt, Sampler
from benchmarks.learning.sessions import OfGroup, PlayedTurn, trajectory
from benchmarks.learning.steps import Steps
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, RendererSettings
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.records import Reward, Trajectory
from seamlessflow.schemas.tokens import unpack
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import Column, chains
from seamlessflow.trainer.data.credit.phase import by_chain
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.inputs import Update

POLICY = "sums"
RATE = 1e-5
_MAX_LENGTH = 256
_KV_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class RolledOut:
    """A step's answers, each with its prompt and its reward."""

    prompts: Sequence[bytes]
    answers: Sequence[Answer]
    rewards: Sequence[float]


@dataclass(frozen=True, slots=True)
class Compared:
    """A variant's gradient beside the exact ids' gradient, for equal answers and weights."""

    norm: float
    distance: float
    """Norm of the difference, as a share of the exact gradient's norm."""
    cosine: float

    @classmethod
    def of_gradients(cls, exact: Tensor, other: Tensor) -> "Compared":
        """Return the comparison of two gradients, none of them zero."""
        exact, other = exact.double(), other.double()  # sums of 135 million squares
        norm = float(exact.norm())
        others = float(other.norm())
        distance = float((other - exact).norm()) / norm
        return cls(others, distance, float(torch.dot(exact, other)) / (norm * others))


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step in a run."""

    step: int
    reward: float
    answers: int
    changed: int
    """Answers whose text has other ids."""
    tokens: int
    """Tokens that were sampled."""
    metrics: Mapping[str, float]
    gaps: Sequence[float]
    """By changed answer: the trainer's log-prob for its other ids, less the engine's, in nats."""
    behind: Sequence[float]
    """By token behind a change in an answer, where ids agree again: the same difference."""
    compared: Mapping[str, Compared]


class SumsTraining:
    """A model in training on sums."""

    def __init__(self, model: Path, variant: Variant, seed: int, steps: int, limit: int) -> None:
        """Load the model. Raise `ModelUnusable`, `RendererError`."""
        self._variant: Variant = variant
        self._seed = seed
        self._limit = limit
        self._settings = settings(seed, steps)
        self.backend = TorchBackend(model, self._settings.trainer)
        self._renderer = Renderer.load(model, RendererSettings(CHAT_TEMPLATE))
        self._tokenizer = Tokenizer.load(model)
        stops = self._renderer.stop_token_ids
        self._sampler = Sampler(model, stops, GROUPS * GROUP_SIZE, _MAX_LENGTH, _KV_BYTES)
        self._steps = Steps(self._settings, self.backend)
        self._aside = Steps(self._settings, self.backend)

    def advance(self, beside: Sequence[Variant] = ()) -> StepRow:
        """Sample, train one step, and return its figures.

        The gradients for the variants `beside` are computed for the same answers, and thrown away.
        """
        step = self._steps.step
        rolled = self._roll_out(step)
        gaps, behind = self._differences(rolled)
        compared = self._compared(rolled, beside)
        batch, updates = self._made(self._steps, self._variant, rolled)
        metrics = self._steps.train(batch, updates)
        with TemporaryDirectory() as directory:
            self.backend.write_weights(Path(directory))
            self._sampler.load(Path(directory), self._steps.step)
        return StepRow(
            step=step,
            reward=fmean(rolled.rewards),
            answers=len(rolled.answers),
            changed=sum(answer.changed for answer in rolled.answers),
            tokens=sum(len(answer.ids) for answer in rolled.answers),
            metrics=metrics,
            gaps=gaps,
            behind=behind,
            compared=compared,
        )

    def _roll_out(self, step: int) -> RolledOut:
        tasks = [task for task in sums(self._seed, step, GROUPS) for _ in range(GROUP_SIZE)]
        prompts = [
            self._renderer.render([{"role": "user", "content": task.question}]) for task in tasks
        ]
        names = [f"{self._seed} {step} {place}" for place in range(len(tasks))]
        asked = [
            Prompt(name, prompt, xxhash.xxh3_64_intdigest(name.encode()))
            for name, prompt in zip(names, prompts, strict=True)
        ]
        completions = self._sampler.sample(asked, max_tokens=self._limit)
        answers = [self._answer(completion) for completion in completions]
        texts = [self._tokenizer.decode(answer.ids, skip_special_tokens=True) for answer in answers]
        rewards = [task.reward(text) for task, text in zip(tasks, texts, strict=True)]
        return RolledOut(prompts, answers, rewards)

    def _answer(self, completion: Completion) -> Answer:
        ids = unpack(bytes(completion.ids))
        logprobs = np.frombuffer(bytes(completion.logprobs), "<f4").tolist()
        again = encoded_again(ids, self._renderer.stop_token_ids, self._tokenizer)
        return Answer(tuple(ids), tuple(logprobs), tuple(again))

    def _made(
        self, steps: Steps, variant: Variant, rolled: RolledOut
    ) -> tuple[Batch, list[Update]]:
        """Return a variant's batch, and its updates under the present weights."""
        batch = steps.batch(self._records(steps.step, variant, rolled))
        if variant != "recomputed":
            return batch, steps.updates(batch)
        scored = recomputed(batch, self._settings.trainer, self.backend)
        return batch, steps.updates(scored)

    def _records(self, step: int, variant: Variant, rolled: RolledOut) -> list[Trajectory]:
        records = []
        for place, answer in enumerate(rolled.answers):
            group, sample = divmod(place, GROUP_SIZE)
            name = f"{step}-{group}"
            of_group = OfGroup(POLICY, f"sum-{name}", name, sample, GROUP_SIZE)
            turn = PlayedTurn(rolled.prompts[place], answer.completion(variant))
            rewards = (Reward(value=rolled.rewards[place]),)
            record = trajectory(of_group, [turn], rewards, step, self._renderer.hash)
            if not answer.trained(variant):
                record = replace(record, loss_mask=bytes(len(record.loss_mask)))
            records.append(record)
        return records

    def _compared(self, rolled: RolledOut, variants: Sequence[Variant]) -> Mapping[str, Compared]:
        """Return each variant's gradient beside the exact one; no weight changes."""
        if not variants or (exact := self._gradient("exact", rolled)) is None:
            return {}
        return {
            variant: Compared.of_gradients(exact, other)
            for variant in variants
            if (other := self._gradient(variant, rolled)) is not None
        }

    def _gradient(self, variant: Variant, rolled: RolledOut) -> Tensor | None:
        """Return a batch's gradient, or None if all its groups have equal rewards."""
        batch, (update,) = self._made(self._aside, variant, rolled)
        self._aside.pass_over(batch)
        # Each value is the gradient so far, so the last one is the batch's.
        vector: Tensor | None = None
        for gradient in self.backend.gradients(update.input):
            vector = torch.cat([of_parameter.flatten() for of_parameter in gradient.values()])
        return vector

    def _differences(self, rolled: RolledOut) -> tuple[list[float], list[float]]:
        """Return `gaps` and `behind` of the step's row."""
        records = self._records(0, "padded", rolled)
        changed = [place for place, answer in enumerate(rolled.answers) if answer.changed]
        scored = [chains(records[place], POLICY).chains[0] for place in changed]
        trainer = self._settings.trainer
        batches = pack(scored, trainer.micro_batch_tokens, trainer.layout)
        columns = self.backend.annotate(batches, (Column.PROXIMAL,)) if batches else {}
        gaps: list[float] = []
        behind: list[float] = []
        for place, column in zip(changed, by_chain(scored, batches, columns), strict=True):
            answer = rolled.answers[place]
            again_N = column[Column.PROXIMAL]
            gaps.append(float(again_N.sum()) - sum(answer.logprobs))
            behind += self._behind(answer, again_N.tolist())
        return gaps, behind

    def _behind(self, answer: Answer, again_N: Sequence[float]) -> Iterator[float]:
        """Yield the trainer's less the engine's log-prob for tokens behind a first change."""
        sampled, again = [
            [self._tokenizer.token_bytes(token) for token in ids]
            for ids in (answer.ids, answer.again)
        ]
        changed = False
        for part in parts(sampled, again):
            first, other = part.sampled[0], part.again[0]
            same = answer.ids[slice(*part.sampled)] == answer.again[slice(*part.again)]
            if same and changed:
                yield again_N[other] - answer.logprobs[first]
            changed = changed or not same


def settings(seed: int, steps: int) -> TrainerSettings:
    """Return the trainer's settings, the same for all variants."""
    trainer = {
        "optimizer": {"lr": RATE},
        "seed": seed,
        "threads": torch.get_num_threads(),
        "device": "cpu",
        "layout": "tree",
        "micro_batch_tokens": 4096,
        "mismatch_versions": 0,
        # A group whose answers are all dropped still fills its place.
        "filters": {"zero_variance": "count", "untrainable": "count"},
    }
    sections: dict[str, Any] = {
        "run": {"policy": POLICY, "steps": steps, "groups_per_step": GROUPS, "lag": 0},
        "trainer": trainer,
    }
    return TrainerSettings(**sections)
