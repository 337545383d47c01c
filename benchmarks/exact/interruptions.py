"""Answers that are interrupted: by new weights, by a move to another engine, or by both.

The torch engine samples through its contract, as a rollout worker uses it. Each sampled token is
scored by the trainer's back end under the version that the engine names for it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import xxhash

from benchmarks.exact.tasks import QUESTIONS
from benchmarks.exact.training import POLICY, SumsTraining, settings
from benchmarks.learning.sampler import Completion
from benchmarks.learning.sessions import OfGroup, PlayedTurn, trajectory
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, RendererSettings
from seamlessflow.producers.rollout.engine.contract import SamplingParams, TokenChunk
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.schemas.arrays import Float32s
from seamlessflow.schemas.records import Reward
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Column, chains
from seamlessflow.trainer.data.credit.phase import by_chain
from seamlessflow.trainer.data.packing import pack

_DEADLINE_S = 1800.0
_STEPS = 100
"""Steps in the schedule for training new weights; only its first steps are made."""


@dataclass(frozen=True, slots=True)
class Case:
    """An interruption's parts."""

    moves: bool
    updates: bool


CASES: Mapping[str, Case] = {
    "none": Case(moves=False, updates=False),
    "new weights": Case(moves=False, updates=True),
    "move": Case(moves=True, updates=False),
    "move to new weights": Case(moves=True, updates=True),
}


@dataclass(slots=True)
class InterruptedAnswer:
    """An answer while it is sampled and after that; engines' threads add to it."""

    prompt: bytes
    seed: int
    completion: Completion = field(default_factory=Completion)
    versions: list[int] = field(default_factory=list)
    finished: bool = False


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """An answer with its tokens' log-probs."""

    ids: tuple[int, ...]
    versions: tuple[int, ...]
    engine: tuple[float, ...]
    trainer: tuple[tuple[float, ...], ...]
    """By version."""


class Sampling:
    """Answers that engines sample, and waiting for them."""

    def __init__(self, answers: Sequence[InterruptedAnswer], limit: int, stops: Sequence[int]):
        self.answers = answers
        self._limit = limit
        self._stops = tuple(stops)
        self._changed = threading.Condition()

    def submit(self, engine: TorchEngine) -> None:
        """Let an engine sample what the answers lack."""
        for place, answer in enumerate(self.answers):
            if answer.finished:
                continue
            sampling = SamplingParams(self._limit, stop_token_ids=self._stops, seed=answer.seed)
            so_far = bytes(answer.completion.ids)
            engine.submit(str(place), answer.prompt, so_far, sampling, self._adder(answer))

    def wait(self, tokens: int) -> None:
        """Return once each answer has `tokens` tokens or is finished. Raises `TimeoutError`."""

        def complete() -> bool:
            return all(answer.finished or len(answer.versions) >= tokens for answer in self.answers)

        with self._changed:
            if not self._changed.wait_for(complete, _DEADLINE_S):
                raise TimeoutError(f"no {tokens} tokens of each answer in {_DEADLINE_S:g} s")

    def _adder(self, answer: InterruptedAnswer) -> Callable[[TokenChunk], None]:
        def add(chunk: TokenChunk) -> None:
            with self._changed:
                answer.completion.add(chunk)
                count = len(chunk.token_ids) // TOKEN_BYTES
                answer.versions += [span.version for span in chunk.spans][:1] * count
                answer.finished = chunk.finish_reason in ("stop", "length")
                self._changed.notify_all()

        return add


def new_weights(model: Path, steps: int, directory: Path) -> None:
    """Write the model after some steps on sums, unless it is there."""
    if directory.exists():
        return
    training = SumsTraining(model, "exact", seed=0, steps=_STEPS, limit=16)
    for _ in range(steps):
        training.advance()
    draft = directory.with_suffix(".part")
    draft.mkdir(parents=True, exist_ok=True)
    training.backend.write_weights(draft)
    for file in model.glob("*.json"):
        (draft / file.name).write_bytes(file.read_bytes())
    draft.rename(directory)


def sampled(
    case: Case, model: Path, new: Path, samples: int, limit: int, after: int
) -> list[InterruptedAnswer]:
    """Return the answers to all questions, each interrupted once it has `after` tokens or more."""
    renderer = Renderer.load(model, RendererSettings(CHAT_TEMPLATE))
    answers = [
        InterruptedAnswer(
            renderer.render([{"role": "user", "content": question}]),
            xxhash.xxh3_64_intdigest(f"{question} {sample}".encode()),
        )
        for sample in range(samples)
        for questions in QUESTIONS.values()
        for question in questions
    ]
    sampling = Sampling(answers, limit, renderer.stop_token_ids)
    threads = torch.get_num_threads()
    chosen = TorchEngineSettings(max_length=256, max_running=48, max_rows=48, threads=threads)
    with ExitStack() as engines:
        engine = engines.enter_context(closing(TorchEngine.from_directory(model, chosen)))
        sampling.submit(engine)
        sampling.wait(after)
        if case.moves:
            engine.pause("abort")  # returns behind the last chunk
            # The next engine is built now, so that only one of them computes at a time.
            directory, version = (new, 1) if case.updates else (model, 0)
            engine = engines.enter_context(
                closing(TorchEngine.from_directory(directory, chosen, version))
            )
            sampling.submit(engine)
        elif case.updates:
            engine.pause("keep")
            engine.load_weights(new, 1)
            engine.resume()
        sampling.wait(limit)
    return answers


def scored(answers: Sequence[InterruptedAnswer], models: Sequence[Path]) -> list[ScoredAnswer]:
    """Return the answers with the trainer's log-probs under each version's model."""
    by_version = [_scores(answers, model) for model in models]
    return [
        ScoredAnswer(
            tuple(np.frombuffer(bytes(answer.completion.ids), "<i4").tolist()),
            tuple(answer.versions),
            tuple(np.frombuffer(bytes(answer.completion.logprobs), "<f4").tolist()),
            tuple(tuple(scores[place].tolist()) for scores in by_version),
        )
        for place, answer in enumerate(answers)
    ]


def _scores(answers: Sequence[InterruptedAnswer], model: Path) -> list[Float32s]:
    trainer = settings(seed=0, steps=1).trainer
    backend = TorchBackend(model, trainer)
    records = [
        trajectory(
            OfGroup(POLICY, str(place), str(place), 0, 1),
            [PlayedTurn(answer.prompt, answer.completion)],
            (Reward(value=0.0),),
            version=0,
            tokenizer_hash="",
        )
        for place, answer in enumerate(answers)
    ]
    each = [chains(record, POLICY).chains[0] for record in records]
    batches = pack(each, trainer.micro_batch_tokens, trainer.layout)
    columns = backend.annotate(batches, (Column.PROXIMAL,))
    return [of_chain[Column.PROXIMAL] for of_chain in by_chain(each, batches, columns)]
