"""Two ranks train as one: the same weights, checkpoints and metrics, however the work is shared."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.trainer.backends.backend import Backend, StepInput, UpdateFailed
from seamlessflow.trainer.backends.fsdp_backend import FsdpBackend
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.aggregations import chain_weights
from seamlessflow.trainer.data.chains import Column, Columns, credited
from seamlessflow.trainer.data.credit.phase import by_chain
from seamlessflow.trainer.data.packing import MicroBatch, pack
from seamlessflow.trainer.data.units import units
from seamlessflow.trainer.loss import LossSection
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import forked_chains, sampled, some_chains, with_advantages
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.models import write_tiny
from tests.integration.trainer.gang.following_rank import settings

TIMEOUT_S = 120
ADVANTAGES = [1.0, -1.0, 0.5, -2.0, 0.3, 1.5]
TRAINED = ["{}", json.dumps({"adapter": {"rank": 2}})]
TOKENWISE = LossSection()
BY_SESSION = LossSection(surrogate="gspo", aggregation="sequence_mean", entropy=0.01)
CORRECTED = LossSection(
    correction="tis", correction_level="session", aggregation="constant", constant_length=9
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def dtype() -> str:
    return "float32"


@pytest.fixture
def loss() -> LossSection:
    return LossSection()


@pytest.fixture
def more(loss: LossSection) -> str:
    """Return further settings of both ranks, as JSON."""
    return json.dumps({"loss": loss.model_dump()})


@pytest.fixture
def end() -> int:
    """Return the status that the other rank ends with."""
    return 0


@pytest.fixture
def leader(model: Path, dtype: str, more: str, end: int) -> Iterator[FsdpBackend]:
    way = meeting()
    module = "tests.integration.trainer.gang.following_rank"
    command = [sys.executable, "-m", module, str(model), way.place, dtype, more]
    with subprocess.Popen(command) as other:
        backend = FsdpBackend(model, settings(0, dtype, more), way)
        yield backend
        assert other.wait(TIMEOUT_S) == end
        backend.close()


def on_one(more: str) -> TrainerSection:
    """Return the settings of one rank."""
    return TrainerSection.model_validate({"device": "cpu", "threads": 1, **json.loads(more)})


def step(model: Path, seed: int, loss: LossSection = TOKENWISE) -> StepInput:
    """Return made-up chains of version 1 to train and sampled ones of version 0 to measure.

    They are of three sessions.
    """
    chains = [
        replace(chain, session_id="abc"[place % 3])
        for place, chain in enumerate(with_advantages(some_chains(seed), ADVANTAGES))
    ]
    units_C = units(loss.unit, chains, [0] * len(chains))
    weights_C = chain_weights(chains, loss)
    batches = pack(chains, 16, "padded", units_C=units_C, weights_C=weights_C)
    old = pack(sampled(model, version=0), 64, "padded")
    return StepInput(batches, old, 1, 0.05)


def trained(backend: Backend, model: Path, out: Path) -> list[dict[str, float]]:
    """Run two steps with a checkpoint between them, then a third from it; return their metrics."""
    backend.load(None, 0)
    backend.rest()
    metrics = [dict(backend.train(step(model, 0)))]
    backend.remember(1)
    backend.snapshot()
    backend.save(out)
    metrics.append(dict(backend.train(step(model, 1))))
    metrics.append(dict(backend.train(StepInput([], [], 2, 0.05))))
    backend.rest()
    backend.load(out, 1)
    metrics.append(dict(backend.train(step(model, 2))))
    backend.write_weights(out)
    backend.rest()
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize("more", TRAINED, ids=["whole", "adapter"])
def test_two_ranks_train_what_one_does(
    leader: FsdpBackend, model: Path, tmp_path: Path, more: str
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    alone = TorchBackend(model, on_one(more))
    single, shared = (
        trained(alone, model, tmp_path / "one"),
        trained(leader, model, tmp_path / "two"),
    )
    for expected, measured in zip(single, shared, strict=True):
        assert measured == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert single[0]["mismatch_tokens"] == 24
    names, others = (
        {path.name for path in (tmp_path / folder).iterdir()} for folder in ("one", "two")
    )
    assert names == others
    for name in names - {"random.safetensors"}:
        paths = tmp_path / "one" / name, tmp_path / "two" / name
        if name.endswith(".json"):
            assert paths[0].read_bytes() == paths[1].read_bytes()
        else:
            torch.testing.assert_close(*map(load_file, paths), atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.soak  # test_whole_steps.py has all losses, after whole steps
@pytest.mark.parametrize("loss", [BY_SESSION, CORRECTED], ids=["gspo", "tis"])
def test_a_loss_of_sessions_is_the_same_on_two_ranks(
    leader: FsdpBackend, model: Path, loss: LossSection
) -> None:
    alone = TorchBackend(model, TrainerSection(device="cpu", threads=1, loss=loss))
    metrics = []
    for backend in (alone, leader):
        backend.load(None, 0)
        backend.rest()
        metrics.append(backend.train(step(model, 0, loss)))
        backend.rest()
        backend.rest()
    wanted, measured = metrics
    assert measured == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert wanted["grad_norm"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("more", [json.dumps({"layout": "tree"})])
def test_two_ranks_train_trees_as_one_trains_single_chains(
    leader: FsdpBackend, model: Path
) -> None:
    chains = [credited(chain, place % 3 - 1) for place, chain in enumerate(forked_chains())]
    alone = TorchBackend(model, TrainerSection(device="cpu", threads=1))
    metrics = []
    single, trees = pack(chains, 200, "padded"), pack(chains, 40, "tree")
    for backend, batches in ((alone, single), (leader, trees)):
        backend.load(None, 0)
        backend.rest()
        metrics.append(backend.train(StepInput(batches, [], 0, 0.05)))
        backend.rest()
        backend.rest()
    wanted, measured = metrics
    assert measured == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert wanted["grad_norm"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "more"), [("float16", TRAINED[0]), ("bfloat16", TRAINED[1])])
def test_a_gang_that_computes_in_half_precision_keeps_float32_weights(
    leader: FsdpBackend, model: Path, tmp_path: Path, dtype: str, more: str
) -> None:
    (tmp_path / "two").mkdir()
    metrics = trained(leader, model, tmp_path / "two")
    exact = TorchBackend(model, on_one(more)).train(step(model, 0))
    assert metrics[0]["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)
    for name in ("weights.safetensors", "optimizer.safetensors"):
        assert {tensor.dtype for tensor in load_file(tmp_path / "two" / name).values()} == {
            torch.float32
        }
    (published,) = (tmp_path / "two").glob("*model.safetensors")
    assert {tensor.dtype for tensor in load_file(published).values()} == {getattr(torch, dtype)}


CREDIT = {
    "advantage": "gae",
    "kl_penalty": 0.1,
    "critic": {"lr": 0.01},
}


def annotated(backend: Backend, out: Path) -> list[list[float]]:
    """Annotate, train and annotate again, with a checkpoint between; return the columns."""
    names = [Column.REFERENCE, Column.VALUE, Column.TOP_SHARE]
    chains = with_advantages(some_chains(0, 5), ADVANTAGES[:5])
    results: list[list[float]] = []

    def look() -> None:
        # Three micro-batches, so that one rank has one less.
        packed = pack(chains, 32, "padded")
        columns = by_chain(chains, packed, backend.annotate(packed, names))
        results.extend(values[name].tolist() for values in columns for name in names)

    def learn(target: float) -> None:
        total = sum(chain.trained() for chain in chains)
        ones = [np.ones(chain.trained(), np.float32) for chain in chains]
        columns: list[Columns] = [
            {Column.TARGET: mask * target, Column.TARGET_WEIGHT: (mask / total).astype(np.float32)}
            for mask in ones
        ]
        pairs = zip(chains, columns, strict=True)
        taught = [replace(chain, columns=targets) for chain, targets in pairs]
        batches = pack(taught, 32, "padded")
        metrics = backend.train(StepInput(batches, [], 1, 0.05))
        results.append([metrics["value_loss"]])

    backend.load(None, 0)
    backend.rest()
    look()
    learn(1.0)
    look()
    backend.snapshot()
    backend.save(out)
    learn(2.0)
    backend.rest()
    backend.load(out, 1)
    learn(2.0)
    look()
    backend.rest()
    return results


HEAD = {**CREDIT, "critic": {"kind": "head", "coefficient": 0.5, "lr": 0.01}}


@pytest.mark.slow
@pytest.mark.parametrize("more", [json.dumps(CREDIT), json.dumps(HEAD)], ids=["model", "head"])
def test_two_ranks_annotate_what_one_does(
    leader: FsdpBackend, model: Path, tmp_path: Path, more: str
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    alone = TorchBackend(model, on_one(more))
    single, shared = annotated(alone, tmp_path / "one"), annotated(leader, tmp_path / "two")
    assert len(single) == 48
    for expected, measured in zip(single, shared, strict=True):
        assert measured == pytest.approx(expected, rel=1e-4, abs=1e-5)
    files = (tmp_path / folder / "critic-weights.safetensors" for folder in ("one", "two"))
    whole, sharded = map(load_file, files)
    assert whole.keys() == sharded.keys()


def no_turns(batch: MicroBatch) -> MicroBatch:
    """Return a micro-batch of which a loss by turns cannot make anything."""
    return replace(batch, turns_N=batch.turns_N[:-1])


def infinite(batch: MicroBatch) -> MicroBatch:
    return replace(batch, advantages_N=batch.advantages_N * np.float32("inf"))


BY_TURN = json.dumps({"loss": {"surrogate": "gspo", "ratio_level": "turn"}})


@pytest.mark.slow
@pytest.mark.parametrize("end", [ExitStatus.LASTING])
@pytest.mark.parametrize("more", [BY_TURN])
@pytest.mark.parametrize(
    ("change", "rank", "reason"),
    [
        (no_turns, 0, r"loss gspo failed: \w+Error"),
        (no_turns, 1, r"loss gspo failed: \w+Error"),
        (infinite, 1, r"the gradient of loss gspo is not finite .*tokens have a loss that is not"),
    ],
)
def test_a_loss_that_fails_on_one_rank_stops_both_and_says_why(
    leader: FsdpBackend, change: Callable[[MicroBatch], MicroBatch], rank: int, reason: str
) -> None:
    batches = pack(with_advantages(some_chains(), ADVANTAGES), 16, "padded")
    batches.sort(key=lambda batch: -batch.ids_BT.size)
    # Of two ranks the second trains the second largest.
    wrong = batches[rank]
    batches[rank] = change(wrong)
    leader.load(None, 0)
    leader.rest()
    with pytest.raises(UpdateFailed, match=reason) as raised:
        leader.train(StepInput(batches, [], 1, 0.05))
    named = {*wrong.chains_N.tolist()} if change is infinite else set()
    assert {*raised.value.chains} == named
