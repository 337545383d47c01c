"""The record of trained tokens has each token once, as it entered the loss."""

import gzip
import hashlib
from pathlib import Path
from typing import get_args

import pytest

from seamlessflow.trainer.data.chains import Chain, chains, credited, without
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.steps.trained import (
    Header,
    TrainedRun,
    file_name,
    write_trained,
)
from tests.builders.auditing.trained_files import read_trained
from tests.builders.trainer.chains import with_advantages
from tests.builders.trainer.trajectories import Run, trajectory

HEADER = Header(step=4, version=5, lineage="a", policy="tiny", tokens=5)


def two_turns() -> Chain:
    runs = [
        Run([1, 2], "prompt", "a"),
        Run([3, 4, 5], "policy", "a", 0, 2, versions=[4, 4, 5], logprobs=[-0.1, -0.2, -0.3]),
        Run([6, 7], "policy", "b", 1, 3, versions=[5, 5], logprobs=[-0.4, -0.5]),
    ]
    return chains(trajectory(runs, "s"), "tiny").chains[0]


def written(
    directory: Path, step_chains: list[Chain], layout: Layout = "padded"
) -> list[TrainedRun]:
    batches = pack(step_chains, 64, layout)
    write_trained(directory, HEADER, [(step_chains, batches)])
    header, runs = read_trained(directory / file_name(HEADER.step, HEADER.version))
    assert header == HEADER
    return runs


@pytest.mark.parametrize("layout", get_args(Layout))
def test_turns_are_runs_of_their_own(tmp_path: Path, layout: Layout) -> None:
    first, second = written(tmp_path, with_advantages([two_turns()], [0.75]), layout)
    assert (first.session, first.turn, first.offset, first.ids) == ("s", "a", 0, [3, 4, 5])
    assert first.logprobs == pytest.approx([-0.1, -0.2, -0.3], abs=1e-7)
    assert first.versions == [4, 4, 5]
    assert first.advantage == 0.75
    assert (second.turn, second.offset, second.ids) == ("b", 0, [6, 7])


def test_a_masked_token_ends_a_run(tmp_path: Path) -> None:
    chain = two_turns()
    shorter = without(chain, chain.tokens.ids_T == 4)
    assert shorter is not None
    assert [(run.offset, run.ids) for run in written(tmp_path, [shorter])] == [
        (0, [3]),
        (2, [5]),
        (0, [6, 7]),
    ]


def test_log_probs_come_back_bit_for_bit(tmp_path: Path) -> None:
    import numpy as np

    chain = two_turns()
    said = np.random.default_rng(0).normal(-3, 2, len(chain)).astype(np.float32)
    chain.tokens.logprobs_T[:] = said
    logprobs = [value for run in written(tmp_path, [chain]) for value in run.logprobs]
    assert np.array_equal(np.array(logprobs, np.float32), said[chain.tokens.trained_T])


def test_sessions_keep_their_advantages(tmp_path: Path) -> None:
    step_chains = with_advantages([two_turns(), two_turns()], [0.75, 1.75])
    assert (
        sorted(run.advantage for run in written(tmp_path, step_chains, "packed"))
        == [0.75] * 2 + [1.75] * 2
    )


def test_tokens_of_a_turn_may_have_advantages_of_their_own(tmp_path: Path) -> None:
    chain = credited(two_turns(), [0.5, -0.5, 0.25, 2, 2])
    assert [run.advantage for run in written(tmp_path, [chain])] == [[0.5, -0.5, 0.25], 2]


def test_a_step_without_tokens_has_a_file_too(tmp_path: Path) -> None:
    assert written(tmp_path, []) == []


def test_equal_steps_are_equal_bytes_and_nothing_else_is_left(tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        step_chains = [two_turns()]
        sha256 = write_trained(tmp_path, HEADER, [(step_chains, pack(step_chains, 64, "padded"))])
        [path] = tmp_path.iterdir()
        contents.append(path.read_bytes())
        assert sha256 == hashlib.sha256(gzip.decompress(contents[-1])).hexdigest()
    assert contents[0] == contents[1]
    assert [file.name for file in tmp_path.iterdir()] == ["step-00000004-version-00000005.jsonl.gz"]
