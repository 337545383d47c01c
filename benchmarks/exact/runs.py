"""Runs and cases that were made once, as files: a training's rows, a case's answers."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.exact.interruptions import CASES, ScoredAnswer, new_weights, sampled, scored
from benchmarks.exact.training import Compared, StepRow, SumsTraining
from benchmarks.exact.variants import VARIANTS, Variant

COMPARED: tuple[Variant, ...] = tuple(name for name in VARIANTS if name != "exact")


@dataclass(frozen=True, slots=True)
class Run:
    """A training: its variant, its seed, its length, and the most tokens in an answer."""

    variant: Variant
    seed: int
    steps: int
    limit: int

    @property
    def file(self) -> str:
        """Return its file's name."""
        return f"{self.variant}-seed{self.seed}-steps{self.steps}-limit{self.limit}.jsonl"

    def exists(self, out: Path) -> bool:
        """Return whether it was made."""
        return (out / "training" / self.file).exists()


def train(
    run: Run, model: Path, out: Path, every: int, on_row: Callable[[StepRow], None]
) -> list[StepRow]:
    """Return a run's rows, from its file or after making it.

    Each `every`-th step in an exact run also computes the variants' gradients; 0: no step.
    """
    file = out / "training" / run.file
    if not file.exists():
        training = SumsTraining(model, run.variant, run.seed, run.steps, run.limit)
        rows = []
        for step in range(run.steps):
            beside = run.variant == "exact" and every > 0 and step % every == 0
            rows.append(training.advance(COMPARED if beside else ()))
            on_row(rows[-1])
        _write(file, map(asdict, rows))
    return rows_of(file)


def rows_of(file: Path) -> list[StepRow]:
    """Return the rows in a run's file."""
    return [
        StepRow(
            **{
                **row,
                "compared": {name: Compared(**pair) for name, pair in row["compared"].items()},
            }
        )
        for row in _read(file)
    ]


@dataclass(frozen=True, slots=True)
class Interruption:
    """Sizes for measuring interruptions."""

    samples: int
    """Answers to each question."""
    limit: int
    after: int
    """Tokens in each answer, at least, before it is interrupted."""
    steps: int
    """Training steps that the new weights are ahead."""

    def file(self, case: str, out: Path) -> Path:
        """Return a case's file."""
        sizes = f"limit{self.limit}-after{self.after}-steps{self.steps}-samples{self.samples}"
        return out / "interruptions" / f"{case.replace(' ', '-')}-{sizes}.jsonl"


def interrupt(case: str, sizes: Interruption, model: Path, out: Path) -> list[ScoredAnswer]:
    """Return a case's scored answers, from its file or after sampling them."""
    file = sizes.file(case, out)
    if not file.exists():
        new = out / f"weights-steps{sizes.steps}"
        new_weights(model, sizes.steps, new)
        answers = sampled(CASES[case], model, new, sizes.samples, sizes.limit, sizes.after)
        _write(file, map(asdict, scored(answers, (model, new))))
    return [
        ScoredAnswer(
            tuple(row["ids"]),
            tuple(row["versions"]),
            tuple(row["engine"]),
            tuple(map(tuple, row["trainer"])),
        )
        for row in _read(file)
    ]


def _read(file: Path) -> Sequence[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".part")
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draft.replace(file)
