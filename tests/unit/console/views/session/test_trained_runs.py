"""Rows of `trained/` are found by step and stand where their tokens were sampled."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seamlessflow.console.views.session.reason import TokenReason as Why
from seamlessflow.console.views.session.trained_runs import (
    name_of,
    trained_columns,
    trained_runs,
)
from seamlessflow.schemas import records as r
from seamlessflow.trainer.data.chains import chains
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.steps.trained import Header, file_name, write_trained
from tests.builders.console.explained_sessions import (
    SESSION,
    WHOLE,
    committed,
    explanation,
    finite,
    kinds,
    rows_of,
    trajectory_of,
)


def step(directory: Path, policy: str = "p") -> r.StepCommitted:
    """Write the file of a step that trained the session; return its commit."""
    of_session = chains(trajectory_of(WHOLE), "p").chains
    batches = pack(of_session, 64, "padded")
    header = Header(step=0, version=1, lineage="a", policy=policy, tokens=3)
    sha256 = write_trained(directory, header, [(of_session, batches)])
    return committed(3, policy=policy, trained_sha256=sha256)


@pytest.mark.parametrize("folder", ["", "p"])
def test_rows_are_read_where_a_run_keeps_them(tmp_path: Path, folder: str) -> None:
    commit = step(tmp_path / folder)
    read = trained_runs(tmp_path, [commit], SESSION)
    assert [(run.turn, run.offset, run.ids) for run in read.by_step[name_of(commit)]] == [
        ("a", 0, [3, 4, 5])
    ]
    assert read.faults == ()
    tokens = explanation(WHOLE, [commit], read.by_step)
    assert kinds(tokens)[2:] == [Why.TRAINED] * 3


def test_a_step_without_a_file_has_no_rows(tmp_path: Path) -> None:
    assert trained_runs(tmp_path, [committed()], SESSION).by_step == {}


def test_steps_of_other_groups_are_not_read(tmp_path: Path) -> None:
    commit = replace(step(tmp_path), groups=(r.StepGroup(group_id="h", sessions=("t",)),))
    assert trained_runs(tmp_path, [commit], SESSION).by_step == {}


def test_a_file_that_is_not_what_its_step_committed_is_named(tmp_path: Path) -> None:
    commit = replace(step(tmp_path), trained_sha256="0" * 64)
    (fault,) = trained_runs(tmp_path, [commit], SESSION).faults
    assert "its file is not the one that it committed" in fault


def test_a_file_that_cannot_be_read_is_named_and_counts_as_missing(tmp_path: Path) -> None:
    commit = step(tmp_path)
    (tmp_path / file_name(0, 1)).write_bytes(b"no gzip")
    read = trained_runs(tmp_path, [commit], SESSION)
    assert read.by_step == {}
    assert "cannot be read" in read.faults[0]


def test_rows_stand_where_their_tokens_were_sampled() -> None:
    columns = explanation(WHOLE).columns
    rows = trained_columns([rows_of(1, 4, 5, advantage=[2.0, 3.0])], columns.nodes, columns.ids_T)
    assert rows.trained_T.tolist() == [False, False, False, True, True]
    assert finite(rows.advantages_T) == [None, None, None, 2.0, 3.0]
    assert finite(rows.temperatures_T)[3:] == [1.0, 1.0]


@pytest.mark.parametrize("first", [2, 7])
def test_rows_behind_the_end_of_an_answer_are_strangers(first: int) -> None:
    columns = explanation(WHOLE).columns
    rows = trained_columns([rows_of(first, 5, 6)], columns.nodes, columns.ids_T)
    assert rows.strangers == 2
    assert not np.any(rows.trained_T)
