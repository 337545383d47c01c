"""Training on Trail in this process: the trainer's part is `steps.py`, without Kafka.

The policy itself samples the sessions (`sessions.py`). Everything follows from settings, data and
seed: executed again, it gives equal numbers.
"""

import json
import random
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.learning.draws import Draws
from benchmarks.learning.experts import expert_mixing
from benchmarks.learning.methods import GROUP_SIZE, GROUPS, POLICY, Method
from benchmarks.learning.sampler import Sampler
from benchmarks.learning.sessions import Played, Player, Seat, recorded
from benchmarks.learning.steps import Steps
from benchmarks.trail.game import TrailTask
from seamlessflow.demo.configuration import MAX_CONTEXT, RENDERER
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSettings

_EVALUATED_AT_ONCE = 64
GROUP_RELATIVE = Method()
"""Tasks at random, a reward for each right turn."""


@dataclass(frozen=True, slots=True)
class Point:
    """The policy after some steps."""

    step: int
    tokens: int
    """Tokens sampled for training until then."""
    reward: float
    """Mean reward on the held-out tasks."""
    levels: tuple[float, ...]
    """Mean reward for each level."""
    equal_share: float = 0.0
    """Share of groups with equal returns, since the previous point."""
    drawn_level: float = 0.0
    """Mean level of these groups' tasks."""


class Training:
    """A policy in training on the tasks in a directory that `trail/prepare.py` wrote."""

    def __init__(
        self, settings: TrainerSettings, data: Path, method: Method = GROUP_RELATIVE
    ) -> None:
        """Load model and tasks. Raise `ModelUnusable`."""
        self._settings, self._seed = settings, settings.trainer.seed
        self._method = method
        self._tasks = _read(data / "tasks" / "train.jsonl")
        self._held_out = _read(data / "tasks" / "eval.jsonl")
        self.backend = TorchBackend(data / "model", settings.trainer)
        renderer = Renderer.load(data / "model", RENDERER)
        rows = max(GROUPS * GROUP_SIZE, _EVALUATED_AT_ONCE)
        self._sampler = Sampler(data / "model", renderer.stop_token_ids, rows, MAX_CONTEXT)
        self._player = Player(self._sampler, renderer, self._seed)
        self._hash = renderer.hash
        mixing = None
        if settings.trainer.replay.name:
            mixing = expert_mixing(settings, self._player, self._tasks, renderer.hash)
        self._steps = Steps(settings, self.backend, mixing)
        self._waiting: deque[list[Trajectory]] = deque()
        self._groups: deque[list[str]] = deque()
        self._draws: Draws | None = None
        if method.pacing is not None:
            self._draws = Draws(self._tasks, method.pacing, self._seed)
        self._rolled_out = 0
        self.tokens = 0
        self._drawn: list[tuple[bool, int]] = []
        """For each group since the last evaluation: equal returns, and level."""

    @property
    def step(self) -> int:
        """Return how many steps were made so far."""
        return self._steps.step

    def advance(self) -> dict[str, float]:
        """Sample what is missing, train one step, and return its metrics."""
        while len(self._waiting) <= self._settings.run.lag:
            self._waiting.append(self._roll_out())
        groups = self._groups.popleft()
        batch = self._steps.batch(self._waiting.popleft())
        metrics = self._steps.train(batch, self._steps.updates(batch))
        with TemporaryDirectory() as directory:
            self.backend.write_weights(Path(directory))
            self._sampler.load(Path(directory), self.step)
        if self._draws is not None:
            self._draws.trained(self.step, groups)
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
                self._reward(session) for session in sessions if session.seat.task["level"] == level
            )
            for level in levels
        )
        reward = fmean(self._reward(session) for session in sessions)
        drawn = self._drawn or [(False, 0)]
        self._drawn = []
        equal = fmean(is_equal for is_equal, _ in drawn)
        return Point(self.step, self.tokens, reward, means, equal, fmean(n for _, n in drawn))

    def _roll_out(self) -> list[Trajectory]:
        """Play a batch's groups with the present weights."""
        groups = self._next_groups()
        seats = [
            Seat(task, name, sample, samples)
            for name, task, samples in groups
            for sample in range(samples)
        ]
        played = self._player.play(seats)
        self.tokens += (
            sum(len(turn.completion.ids) for session in played for turn in session.turns) // 4
        )
        self._groups.append([name for name, _, _ in groups])
        self._note(groups, played)
        rewards = self._method.all_or_nothing
        return [recorded(session, POLICY, self.step, self._hash, rewards) for session in played]

    def _next_groups(self) -> list[tuple[str, TrailTask, int]]:
        """Return name, task and sample count for the next groups."""
        if self._draws is not None:
            return self._draws.next(GROUPS)
        name = f"batch-{self._rolled_out}"
        draw = random.Random(f"{self._seed} {name}")  # nosec B311 # repeatable draws
        tasks = draw.sample(self._tasks, GROUPS)
        self._rolled_out += 1
        return [(f"{name}-{place}", task, GROUP_SIZE) for place, task in enumerate(tasks)]

    def _note(self, groups: list[tuple[str, TrailTask, int]], played: list[Played]) -> None:
        """Note the outcomes of a batch's groups."""
        for name, task, _ in groups:
            sessions = [session for session in played if session.seat.group == name]
            returns = [self._reward(session) for session in sessions]
            self._drawn.append((max(returns) == min(returns), task["level"]))
            if self._draws is not None:
                turns = [len(session.turns) for session in sessions]
                self._draws.ready(name, returns, turns)

    def _reward(self, played: Played) -> float:
        reward = played.walk.reward
        return float(reward == 1) if self._method.all_or_nothing else reward


def _read(path: Path) -> list[TrailTask]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
