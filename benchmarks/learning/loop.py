"""Training in this process: the trainer's dataloader, estimators, losses and back end, no Kafka.

Sessions come from `sessions.py`, sampled by the policy itself. Everything is a function of
settings, data and seed: executed again, it gives equal numbers.
"""

import json
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.learning.methods import GROUP_SIZE, GROUPS, POLICY
from benchmarks.learning.sampler import Sampler
from benchmarks.learning.sessions import Played, Player, Seat, recorded
from benchmarks.trail.game import TrailTask
from seamlessflow.demo.configuration import MAX_CONTEXT, RENDERER
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch, BatchLimits
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import Origin, resume_from
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated
from seamlessflow.trainer.steps.dataloader import Dataloader
from seamlessflow.trainer.steps.inputs import batch_rules, of_step, step_updates

_EVALUATED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Point:
    """The policy after some steps."""

    step: int
    tokens: int
    """Tokens sampled for training until then."""
    reward: float
    """Mean reward on the held-out tasks."""
    levels: tuple[float, ...]
    """The same for each level."""


class Training:
    """A policy in training on the tasks of a directory that `trail/prepare.py` wrote."""

    def __init__(self, settings: TrainerSettings, data: Path) -> None:
        """Load model and tasks. Raise `ModelUnusable`."""
        self._settings, self._seed = settings, settings.trainer.seed
        self._tasks = _read(data / "tasks" / "train.jsonl")
        self._held_out = _read(data / "tasks" / "eval.jsonl")
        self.backend = TorchBackend(data / "model", settings.trainer)
        renderer = Renderer.load(data / "model", RENDERER)
        rows = max(GROUPS * GROUP_SIZE, _EVALUATED_AT_ONCE)
        self._sampler = Sampler(data / "model", renderer.stop_token_ids, rows, MAX_CONTEXT)
        self._player = Player(self._sampler, renderer, self._seed)
        self._hash = renderer.hash
        self._state = ControlState(POLICY)
        limits = BatchLimits(GROUPS, settings.run.lag, refill=0, window=GROUPS)
        resume = resume_from(self._state, Origin(), "loop")
        self._loader = Dataloader(resume, self._state, POLICY, batch_rules(settings), limits, 0)
        self._waiting: deque[list[Trajectory]] = deque()
        self._rolled_out = 0
        self._offset = 0
        self.step = 0
        self.tokens = 0

    def advance(self) -> dict[str, float]:
        """Sample what is missing, train one step, and return its metrics."""
        while len(self._waiting) <= self._settings.run.lag:
            self._waiting.append(self._roll_out())
        batch = self._batch(self._waiting.popleft())
        ready = annotated(self._settings.trainer, batch, self.backend)
        updates = step_updates(self._settings, ready, self.step, self.step, ())
        metrics = of_step([self.backend.train(update.input) for update in updates])
        self._loader.consumed(batch)
        self.step += 1
        # A version is the number of its steps here.
        self._state.steps_of[self.step] = self.step
        with TemporaryDirectory() as directory:
            self.backend.write_weights(Path(directory))
            self._sampler.load(Path(directory), self.step)
        return metrics

    def evaluate(self) -> Point:
        """Return the policy's reward on the held-out tasks, sampled as in training."""
        sessions: list[Played] = []
        for first in range(0, len(self._held_out), _EVALUATED_AT_ONCE):
            tasks = self._held_out[first : first + _EVALUATED_AT_ONCE]
            seats = [Seat(task, f"eval-{self.step}-{task['id']}", 0, 1) for task in tasks]
            sessions += self._player.play(seats)
        levels = sorted({session.seat.task["level"] for session in sessions})
        means = tuple(
            fmean(
                session.walk.reward for session in sessions if session.seat.task["level"] == level
            )
            for level in levels
        )
        reward = fmean(session.walk.reward for session in sessions)
        return Point(self.step, self.tokens, reward, means)

    def _roll_out(self) -> list[Trajectory]:
        """Play the groups of a batch with the present weights."""
        name = f"batch-{self._rolled_out}"
        draw = random.Random(f"{self._seed} {name}")  # nosec B311 # repeatable draws
        tasks = draw.sample(self._tasks, GROUPS)
        self._rolled_out += 1
        seats = [
            Seat(task, f"{name}-{place}", sample, GROUP_SIZE)
            for place, task in enumerate(tasks)
            for sample in range(GROUP_SIZE)
        ]
        played = self._player.play(seats)
        self.tokens += (
            sum(len(turn.completion.ids) for session in played for turn in session.turns) // 4
        )
        return [recorded(session, POLICY, self.step, self._hash) for session in played]

    def _batch(self, trajectories: Sequence[Trajectory]) -> Batch:
        """Return the batch that the dataloader makes of these sessions."""
        for trajectory in trajectories:
            self._loader.add(trajectory, 0, self._offset, now_ms=0)
            self._offset += 1
        batch, _ = self._loader.next_batch(self.step, now_ms=0)
        assert isinstance(batch, Batch), f"no batch at step {self.step}: {batch}"
        return batch


def _read(path: Path) -> list[TrailTask]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
