"""Two ranks train as one: the same weights, checkpoints and metrics, however the work is shared."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from infra.ports import free_port
from tests.builders.trainer.chains import sampled, some_chains, with_advantages
from tests.builders.trainer.models import open_tiny, write_tiny
from tests.integration.trainer.gang_rank import settings
from trainer.backends.backend import Backend, StepInput
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.backends.torch_backend import TorchBackend
from trainer.data.packing import pack
from trainer.data.units.aggregations import chain_weights
from trainer.data.units.membership import units
from trainer.loss import LossSection
from trainer.settings import TrainerSection

TIMEOUT_S = 120
ADVANTAGES = [1.0, -1.0, 0.5, -2.0, 0.3, 1.5]
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
def leader(model: Path, dtype: str, loss: LossSection) -> Iterator[FsdpBackend]:
    rendezvous = f"127.0.0.1:{free_port()}"
    module = "tests.integration.trainer.gang_rank"
    command = [sys.executable, "-m", module, str(model), rendezvous, dtype, loss.model_dump_json()]
    with subprocess.Popen(command) as other:
        backend = FsdpBackend(model, settings(0, rendezvous, dtype, loss.model_dump_json()))
        yield backend
        assert other.wait(TIMEOUT_S) == 0
        backend.close()


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
def test_two_ranks_train_what_one_does(leader: FsdpBackend, model: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    alone = TorchBackend(model, TrainerSection(device="cpu", threads=1))
    one, two = trained(alone, model, tmp_path / "one"), trained(leader, model, tmp_path / "two")
    for expected, found in zip(one, two, strict=True):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert one[0]["mismatch_tokens"] == 24
    for name in ("weights.safetensors", "optimizer.safetensors"):
        whole, sharded = (load_file(tmp_path / of / name) for of in ("one", "two"))
        assert whole.keys() == sharded.keys()
        for key in whole:
            torch.testing.assert_close(sharded[key], whole[key], atol=1e-4, rtol=1e-3)
    models = [open_tiny(tmp_path / of) for of in ("one", "two")]
    assert models[0].config.architectures == models[1].config.architectures
    for left, right in zip(*(of.parameters() for of in models), strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
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
    wanted, found = metrics
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert wanted["grad_norm"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_gang_that_computes_in_half_precision_keeps_float32_weights(
    leader: FsdpBackend, model: Path, tmp_path: Path, dtype: str
) -> None:
    (tmp_path / "two").mkdir()
    found = trained(leader, model, tmp_path / "two")
    exact = TorchBackend(model, TrainerSection(device="cpu", threads=1)).train(step(model, 0))
    assert found[0]["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)
    for name in ("weights.safetensors", "optimizer.safetensors"):
        assert {one.dtype for one in load_file(tmp_path / "two" / name).values()} == {torch.float32}
    assert open_tiny(tmp_path / "two").dtype == getattr(torch, dtype)
