"""Rows in `trained/` about one session: the tokens that entered a loss, by step.

The files are read from the run's directory. Without them, only a commit's counts are left, which
say less. Called by the page's route, which hands the rows to `reasons.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seamlessflow.recorded.audit.trained_tokens import FileFault, step_files
from seamlessflow.recorded.trace.training_rows import group_with
from seamlessflow.schemas.arrays import Bools, Float32s, Int32s, Int64s
from seamlessflow.schemas.records import Record, StepCommitted, TrajectoryNode
from seamlessflow.trainer.data.chains import SAMPLED
from seamlessflow.trainer.steps.trained import TrainedRun

StepName = tuple[str, int, str]
"""A committed step's policy, version and lineage."""


@dataclass(frozen=True, slots=True)
class TrainedRuns:
    """A session's rows, by step; a step without a file has no entry."""

    by_step: Mapping[StepName, Sequence[TrainedRun]]
    faults: tuple[str, ...] = ()
    """Sentences about files that differ from what their steps committed."""


NO_RUNS = TrainedRuns({})


def name_of(commit: StepCommitted) -> StepName:
    """Return a step's name, by which its rows are kept."""
    return commit.policy, commit.version, commit.lineage


def trained_runs(directory: Path, control: Iterable[Record], session_id: str) -> TrainedRuns:
    """Return a session's rows from a run's files; missing files are left out."""
    commits = [
        record
        for record in control
        if isinstance(record, StepCommitted) and group_with(record, session_id) is not None
    ]
    faults: list[FileFault] = []
    rows = {
        name_of(commit): [run for run in file.runs if run.session == session_id]
        for commit, file in step_files(directory, commits, faults)
    }
    return TrainedRuns(rows, tuple(map(str, faults)))


@dataclass(frozen=True, slots=True)
class TrainedColumns:
    """A session's tokens in a step's loss, as columns over all tokens in its tree (T)."""

    trained_T: Bools
    advantages_T: Float32s
    """NaN for a token that the step did not train."""
    temperatures_T: Float32s
    strangers: int
    """Tokens that rows name and the tree does not have."""


def trained_columns(
    runs: Sequence[TrainedRun], nodes: Sequence[TrajectoryNode], ids_T: Int32s
) -> TrainedColumns:
    """Return where the rows' tokens stand in the tree.

    If a completion has several nodes, its offsets go on counting from node to node, as in the
    trainer's chains.
    """
    trained_T = np.zeros(len(ids_T), np.bool_)
    advantages_T = np.full(len(ids_T), np.nan, np.float32)
    temperatures_T = np.full(len(ids_T), np.nan, np.float32)
    places = _places_of_turns(nodes)
    strangers = 0
    nowhere = np.zeros(0, np.int64)
    for run in runs:
        of_turn = places.get(run.turn, nowhere)
        places_N = of_turn[run.offset : run.offset + len(run.ids)]
        if not np.array_equal(ids_T[places_N], run.ids):
            strangers += len(run.ids)
            continue
        trained_T[places_N] = True
        advantages_T[places_N] = run.advantage
        temperatures_T[places_N] = run.temperature
    return TrainedColumns(trained_T, advantages_T, temperatures_T, strangers)


def _places_of_turns(nodes: Sequence[TrajectoryNode]) -> dict[str, Int64s]:
    """Return the places of each turn's sampled tokens in the tree, in node order."""
    parts: dict[str, list[Int64s]] = {}
    for node in nodes:
        if node.origin in SAMPLED:
            places_N = np.arange(node.start, node.start + node.length, dtype=np.int64)
            parts.setdefault(node.turn_id, []).append(places_N)
    return {turn: np.concatenate(pieces) for turn, pieces in parts.items()}
