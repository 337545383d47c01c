"""A whole step on several ranks is that on one: metrics, gradients, weights, the critic also."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file

from seamlessflow.trainer.backends.backend import Backend, StepInput
from seamlessflow.trainer.backends.losses.corrections import CORRECTIONS
from seamlessflow.trainer.backends.losses.surrogates import SURROGATES
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.aggregations import AGGREGATIONS
from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.loss import LossSection
from seamlessflow.trainer.parallelism import LOGITS_AT_ONCE
from seamlessflow.trainer.ranks.torch_devices import chosen_backend
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.annotation import ESTIMATED, annotated, needed
from seamlessflow.trainer.steps.inputs import batch_rules, of_step, step_updates
from tests.builders.trainer.chains import forked_sessions, some_chains, with_advantages
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.models import write_family, write_wide
from tests.integration.trainer.gang.whole_steps import CASES, GANGS, proven, section

TIMEOUT_S = 120
Further = Sequence["subprocess.Popen[str]"]
"""Processes of the ranks from 1 on."""
Execute = Callable[[Backend, TrainerSettings, Path], dict[str, float]]
FILES = (
    *("model", "adapter_model", "weights", "optimizer"),
    *("critic-weights", "critic-optimizer"),
    *("reference-weights", "reference-optimizer", "reference-steps"),
    "opponent-versions",
    *(f"opponent-{place}-{kind}" for place in range(1, 5) for kind in ("weights", "optimizer")),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("tiny"), "qwen3")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("other"), "qwen3", seed=1)


@pytest.fixture(scope="module")
def further(model: Path) -> Iterator[Further]:
    """Yield a process that is the second rank of one case after the other."""
    with ranks(model, 1) as processes:
        yield processes


@contextmanager
def ranks(model: Path, count: int) -> Iterator[Further]:
    """Yield processes that are each a further rank of one case after the other."""
    command = [sys.executable, "-m", "tests.integration.trainer.gang.whole_steps", str(model)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
            for _ in range(count)
        ]
        yield processes
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(TIMEOUT_S) for process in processes] == [0] * count


def batch(settings: TrainerSettings) -> Batch:
    """Return three groups of two sessions that fork, with a return for each."""
    groups = []
    for number, made in enumerate(forked_sessions(seed=2, groups=3, sessions=2)):
        sessions = [read(trajectory, "tiny", 0, place) for place, trajectory in enumerate(made)]
        valid = tuple(session for session in sessions if isinstance(session, ValidSession))
        groups.append(prepare(Group(f"g{number}", valid), StepClock({}, 0), batch_rules(settings)))
    return Batch(0, tuple(groups))


def executed(backend: Backend, settings: TrainerSettings, out: Path) -> dict[str, float]:
    """Execute a step with all its updates, save what it made, load it and publish it.

    Return its metrics.
    """
    backend.load(None, 0)
    ready = annotated(settings.trainer, batch(settings), backend)
    updates = step_updates(settings, ready, 0, 0, ())
    assert all(len(update.input.micro_batches) > 1 for update in updates)
    metrics = of_step([backend.train(update.input) for update in updates])
    backend.remember(1)
    backend.snapshot()
    out.mkdir()
    backend.save(out)
    saved = {path.name: path.read_bytes() for path in out.iterdir()}
    backend.load(out, 1)
    backend.snapshot()
    backend.save(out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == saved
    backend.write_weights(out)
    backend.rest()
    return metrics


def on_ranks(
    gang: Mapping[str, Any],
    case: Mapping[str, Any],
    model: Path,
    further: Further,
    out: Path,
    execute: Execute = executed,
) -> dict[str, float]:
    """Execute the step of a case on several ranks, as `executed` does."""
    shared, way = {**case, **gang, "ranks": len(further) + 1}, meeting()
    for rank, process in enumerate(further, 1):
        assert process.stdin is not None
        process.stdin.write(f"{way.place} {section(shared, rank=rank).model_dump_json()}\n")
        process.stdin.flush()
    first = section(shared, rank=0)
    try:
        leader = chosen_backend(first)(model, first, way)
        metrics = execute(leader, TrainerSettings(trainer=first), out)
        leader.close()
    finally:
        leave_gang()
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gang", "name"), [(gang, name) for gang in GANGS for name in CASES if proven(gang, name)]
)
def test_a_step_on_two_ranks_is_that_on_one(
    gang: str, name: str, model: Path, other: Path, further: Further, tmp_path: Path
) -> None:
    case = {**CASES[name], "reference": other, "teacher": other}
    alone = section(case)
    wanted = executed(TorchBackend(model, alone), TrainerSettings(trainer=alone), tmp_path / "one")
    metrics = on_ranks(GANGS[gang], case, model, further, tmp_path / "two")
    assert_equal(metrics, wanted, tmp_path / "two", tmp_path / "one")
    beside = 2 * alone.critic_used + 3 * bool(alone.reference_every)
    beside += 2 * alone.opponents + bool(alone.opponents)
    assert len(files(tmp_path / "one")) == 3 + beside


def many_tokens(backend: Backend, _: TrainerSettings, out: Path) -> dict[str, float]:
    """Train micro-batches with more logits than are there at once; return the metrics."""
    backend.load(None, 0)
    chains = with_advantages(some_chains(count=60), [1.0, -1.0, 0.5] * 20)
    batches = pack(chains, 350, "packed")
    assert sum(len(micro_batch) * 151_936 > LOGITS_AT_ONCE for micro_batch in batches) > 1
    metrics = dict(backend.train(StepInput(batches, [], 0, 0.05)))
    backend.snapshot()
    out.mkdir()
    backend.save(out)
    backend.rest()
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize("gang", GANGS)
def test_logits_in_parts_are_those_of_one_rank(gang: str, tmp_path: Path) -> None:
    wide = write_wide(tmp_path / "wide", tied=gang != "megatron-data")
    case = CASES["plain"]
    alone = section(case)
    settings = TrainerSettings(trainer=alone)
    wanted = many_tokens(TorchBackend(wide, alone), settings, tmp_path / "one")
    with ranks(wide, 1) as further:
        metrics = on_ranks(GANGS[gang], case, wide, further, tmp_path / "two", many_tokens)
    assert_equal(metrics, wanted, tmp_path / "two", tmp_path / "one")


@pytest.mark.soak
def test_a_step_on_four_ranks_divided_by_layer_and_by_data_is_that_on_one(
    model: Path, other: Path, tmp_path: Path
) -> None:
    case = {**CASES["critic of turns"], "reference": other}
    alone = section(case)
    wanted = executed(TorchBackend(model, alone), TrainerSettings(trainer=alone), tmp_path / "one")
    with ranks(model, 3) as further:
        metrics = on_ranks(GANGS["megatron-tensor"], case, model, further, tmp_path / "four")
    assert_equal(metrics, wanted, tmp_path / "four", tmp_path / "one")


def assert_equal(
    metrics: Mapping[str, float], wanted: Mapping[str, float], out: Path, single: Path
) -> None:
    """Compare metrics of a step on several ranks and on one, and the files of both."""
    assert metrics == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    assert wanted["grad_norm"] > 0
    assert files(out) == files(single)
    for file in files(single):
        whole, sharded = (load_file(folder / f"{file}.safetensors") for folder in (single, out))
        assert whole.keys() == sharded.keys()
        for key, value in whole.items():
            torch.testing.assert_close(
                sharded[key], value, atol=1e-6, rtol=1e-6, msg=f"{file} {key}"
            )


def files(out: Path) -> list[str]:
    return [file for file in FILES if (out / f"{file}.safetensors").exists()]


@pytest.mark.slow
@pytest.mark.parametrize("gang", GANGS)
def test_a_step_in_bfloat16_on_two_ranks_is_one_but_for_rounding(
    gang: str, model: Path, further: Further, tmp_path: Path
) -> None:
    # A loss without a ratio: no token is on one side of a bound here and on the other there.
    exact = CASES["imitation"]
    half = {**exact, "dtype": "bfloat16"}
    for name, case in (("exact", exact), ("one", half)):
        settings = section(case)
        backend = TorchBackend(model, settings)
        executed(backend, TrainerSettings(trainer=settings), tmp_path / name)
    on_ranks(GANGS[gang], half, model, further, tmp_path / "two")
    moves = {folder: moved(tmp_path / folder, model) for folder in ("exact", "one", "two")}
    single, shared = (float((moves[folder] - moves["exact"]).norm()) for folder in ("one", "two"))
    # Autocast of torch, by which one rank computes, leaves states between layers as they are.
    assert single / 2 < shared < 2 * single


def moved(saved: Path, model: Path) -> torch.Tensor:
    """Return how far a step has moved each weight; of a checkpoint in float32."""
    first = load_file(model / "model.safetensors")
    after = load_file(saved / "weights.safetensors")
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    return torch.cat([(after[name] - first[name]).flatten() for name in sorted(first)])


def test_the_cases_have_every_name_unit_layout_and_column() -> None:
    sections = [section({**case, "teacher": "t"}) for case in CASES.values()]
    losses = [trainer.loss for trainer in sections]
    assert {loss.chosen_surrogate for loss in losses} == set(SURROGATES)
    assert {loss.chosen_correction for loss in losses} == set(CORRECTIONS)
    assert {loss.aggregation for loss in losses} == set(AGGREGATIONS)
    assert {loss.unit for loss in losses} == {"token", "turn", "session"}
    assert {loss.kl_estimator for loss in losses if loss.kl} == estimators()
    assert {trainer.layout for trainer in sections} == set(get_args(Layout))
    assert any(trainer.loss.entropy for trainer in sections)
    computed = {column for trainer in sections for column in needed(trainer)}
    assert computed == set(Column) - ESTIMATED


def estimators() -> set[Any]:
    return set(get_args(LossSection.model_fields["kl_estimator"].annotation))
