"""Curves: held-out reward by step for a method and a seed, computed once and kept as JSON."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.learning.loop import Point, Training
from benchmarks.learning.methods import METHODS, trainer_settings
from benchmarks.trail.prepare import prepare

EVALUATE_EVERY = 10
TEACHER_STEPS = 3
"""Length of the teacher's training, in lengths of a curve's."""

OnPoint = Callable[[str, Point], None]
"""Called with a curve's name and its newest point."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A training that has ended."""

    method: str
    seed: int
    steps: int
    points: tuple[Point, ...]
    took_s: float


def curve(method: str, seed: int, steps: int, out: Path, on_point: OnPoint) -> Curve:
    """Return the curve, from its file or after training it. Raises `KeyError` for no method."""
    name = f"{method}-seed{seed}-steps{steps}"
    file = out / "curves" / f"{name}.json"
    if not file.exists():
        data = prepared(seed, out)
        taught = METHODS[method].taught
        teacher = trained_teacher(seed, steps, out, on_point) if taught else None
        settings = trainer_settings(METHODS[method], seed, steps, teacher)
        began_s = time.monotonic()
        points = _trained(
            Training(settings, data, METHODS[method]), steps, lambda point: on_point(name, point)
        )
        made = Curve(method, seed, steps, points, round(time.monotonic() - began_s, 1))
        _write(made, file)
    return read(file)


def read(file: Path) -> Curve:
    """Return the curve in a file."""
    stored = json.loads(file.read_text(encoding="utf-8"))
    points = [Point(**{**point, "levels": tuple(point["levels"])}) for point in stored["points"]]
    return Curve(stored["method"], stored["seed"], stored["steps"], tuple(points), stored["took_s"])


def prepared(seed: int, out: Path) -> Path:
    """Return the directory of a seed's model and tasks, the same for all methods."""
    data = out / f"data-seed{seed}"
    if not data.exists():
        draft = data.with_suffix(".part")
        shutil.rmtree(draft, ignore_errors=True)  # one that was cut off begins anew
        prepare(draft, seed)
        draft.rename(data)
    return data


def trained_teacher(seed: int, steps: int, out: Path, on_point: OnPoint) -> Path:
    """Return the directory of a seed's teacher: its model after a longer training with grpo."""
    directory = out / f"teacher-seed{seed}-steps{steps}"
    if not directory.exists():
        data, longer = prepared(seed, out), TEACHER_STEPS * steps
        training = Training(trainer_settings(METHODS["grpo"], seed, longer), data)
        _trained(training, longer, lambda point: on_point(directory.name, point))
        draft = directory.with_suffix(".part")
        shutil.copytree(data / "model", draft, dirs_exist_ok=True)
        training.backend.write_weights(draft)
        draft.rename(directory)
    return directory


def _trained(
    training: Training, steps: int, on_point: Callable[[Point], None]
) -> tuple[Point, ...]:
    points = [training.evaluate()]
    while training.step < steps:
        training.advance()
        if training.step % EVALUATE_EVERY == 0 or training.step == steps:
            points.append(training.evaluate())
            on_point(points[-1])
    return tuple(points)


def _write(made: Curve, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps(asdict(made)), encoding="utf-8")
    draft.replace(file)
