"""The clock back end: times of the device model, for one worker and for a gang."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save, save_file

from seamlessflow.infra.clock import never
from seamlessflow.infra.device_model.settings import DeviceModelSection, worker_rates
from seamlessflow.infra.network.line import LineLost
from seamlessflow.trainer.backends.backend import Computing, ModelUnusable, StepInput, unmeasured
from seamlessflow.trainer.backends.clock_backend import (
    MOST_BYTES,
    WEIGHTS,
    ClockBackend,
    ClockInterrupted,
    stand_in,
)
from seamlessflow.trainer.backends.meeting import begun
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from tests.builders.trainer.chains import some_chains
from tests.builders.trainer.gangs.meetings import line, meeting

LIMIT_S = 120.0
SLOW = {"train_s": 2.0, "train_context_s": 0.0}
STEP = StepInput(pack(some_chains(), 64, "packed"), [], 0, 0.05)
LENGTHS = [len(chain.tokens.ids_T) for chain in some_chains()]


def settings(
    model: Path, modelled: dict[str, Any] | None = None, **trainer: Any
) -> TrainerSettings:
    return TrainerSettings(
        policy=PolicySection(model=model),
        device_model=DeviceModelSection(**{"scale": 1e-9, **(modelled or {})}),
        trainer=TrainerSection(backend="clock", **trainer),
    )


class OtherWorker(threading.Thread):
    """A gang's worker of rank 3, which follows until the first one rests or is lost."""

    def __init__(self, settings: TrainerSettings, place: str, computing: Computing) -> None:
        super().__init__(daemon=True)
        self._settings = settings
        self._place = place
        self._computing = computing
        self.lost: LineLost | None = None
        self.start()

    def run(self) -> None:
        way = line(self._place, self._settings.trainer.rank)
        backend = ClockBackend(self._settings, way, self._computing)
        try:
            backend.follow()
        except LineLost as error:
            self.lost = error
        finally:
            backend.interrupt()


@contextmanager
def gang(
    model: Path,
    computing: tuple[Computing, Computing] = (unmeasured, unmeasured),
    **second: Any,
) -> Iterator[tuple[ClockBackend, OtherWorker]]:
    """Yield the first worker, of three devices, and one more, of one device."""
    way = meeting()
    other = OtherWorker(settings(model, second, rank=3, ranks=4), way.place, computing[1])
    first = ClockBackend(settings(model, devices=(0, 1, 2), ranks=4), way, computing[0])
    try:
        yield first, other
    finally:
        first.interrupt()
        other.join(LIMIT_S)


def test_a_step_takes_what_its_sequences_take_and_says_nothing_of_a_loss(tmp_path: Path) -> None:
    modelled = {"model": "Qwen3-4B", "step_s": 3, "scale": 1e-9}
    alone = settings(tmp_path, modelled, devices=(0, 1), ranks=2)
    metrics = ClockBackend(alone, meeting()).train(STEP)
    rates = worker_rates(DeviceModelSection(**modelled), 2)
    modelled_s = 3 + sum(rates.training(tokens) for tokens in LENGTHS)
    assert metrics == {"learning_rate": 0.05, "modelled_s": pytest.approx(modelled_s)}


def test_a_gang_takes_as_long_as_its_slowest_worker_and_rests_together(tmp_path: Path) -> None:
    with gang(tmp_path, rates=SLOW) as (first, other):
        metrics = first.train(STEP)
        first.rest()
        other.join(LIMIT_S)
        assert not other.is_alive()
    assert other.lost is None
    assert metrics["modelled_s"] == pytest.approx(2 * sum(LENGTHS) / 4)


def test_a_worker_waits_once_its_own_part_is_done_while_another_computes(tmp_path: Path) -> None:
    notes: list[tuple[str, bool]] = []
    waits = threading.Event()

    def fast(computes: bool) -> None:
        notes.append(("fast", computes))
        if not computes:
            waits.set()

    def slow(computes: bool) -> None:
        if computes:
            waits.wait(LIMIT_S)
        notes.append(("slow", computes))

    with gang(tmp_path, computing=(fast, slow)) as (first, _):
        first.train(STEP)
    assert notes == [("fast", True), ("fast", False), ("slow", True), ("slow", False)]


@pytest.mark.parametrize(
    ("columns", "passes"),
    [
        ([Column.ENTROPY], 1),
        ([Column.ENTROPY, Column.PROXIMAL, Column.TOP_SHARE], 1),
        ([Column.ENTROPY, Column.REFERENCE, Column.TOP_SHARE, Column.VALUE], 3),
        ([Column.TEACHER], 1),
    ],
    ids=["entropy", "policy", "three models", "teacher"],
)
def test_columns_take_a_forward_pass_of_each_model_that_computes_some(
    tmp_path: Path, columns: list[Column], passes: int
) -> None:
    asked: list[int] = []

    def answer(place: str) -> None:
        with closing(line(place, 1)) as way:
            begun(way, never)
            _, number = way.receive()
            asked.append(number)
            way.send(0.0)

    way = meeting()
    other = threading.Thread(target=answer, args=(way.place,), daemon=True)
    other.start()
    first = ClockBackend(settings(tmp_path, ranks=2), way)
    annotated = first.annotate(STEP.micro_batches, columns)
    first.interrupt()
    other.join(LIMIT_S)
    assert [*annotated] == columns
    assert asked == [passes]


def test_the_loss_of_a_worker_ends_the_others(tmp_path: Path) -> None:
    with gang(tmp_path) as (first, other):
        first.interrupt()
        other.join(LIMIT_S)
        assert other.lost is not None
        with pytest.raises(LineLost):
            first.train(STEP)


def test_a_process_that_must_end_waits_for_no_device(tmp_path: Path) -> None:
    backend = ClockBackend(settings(tmp_path, {"step_s": 1e4, "scale": 1}), meeting())
    backend.interrupt()
    with pytest.raises(ClockInterrupted):
        backend.train(STEP)


def test_a_clock_needs_no_torch(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
import seamlessflow.trainer.ranks.__main__
from seamlessflow.trainer.backends.meeting import Meeting
from seamlessflow.trainer.ranks.bootstrap import worker_devices
from seamlessflow.trainer.settings import TrainerSettings
settings = TrainerSettings(trainer={{"backend": "clock"}}, policy={{"model": {str(tmp_path)!r}}})
way = Meeting(settings.trainer.host, {{}})
worker_devices(settings, lambda: way, print, lambda: False, print)
print(*sorted({{"torch", "transformers", "renderers"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("\n", "")


def test_of_a_small_model_one_value_changes_by_a_little(tmp_path: Path) -> None:
    values = np.linspace(1, 2, 6, dtype=np.float32)
    save_file({"a": values, "b": values}, tmp_path / WEIGHTS)
    weights = stand_in(tmp_path)
    assert weights.dtype == "float32"
    assert weights.after(0) == weights.initial
    changed = load(weights.after(3))
    assert (changed["b"] == values).all()
    assert np.flatnonzero(changed["a"] != values).tolist() == [0]
    assert changed["a"] == pytest.approx(values, rel=1e-5)
    assert weights.after(3) != weights.after(4)


def test_no_weights_and_large_ones_are_a_single_tensor(tmp_path: Path) -> None:
    assert load(stand_in(tmp_path).after(7))["stand_in"].tolist() == [7]
    for weights in ({}, {"a": np.zeros(MOST_BYTES, np.uint8)}):
        (tmp_path / WEIGHTS).write_bytes(save(weights))
        assert load(stand_in(tmp_path).after(7))["stand_in"].tolist() == [7]


def test_a_file_that_is_no_safetensors_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ModelUnusable, match="cannot be read"):
        stand_in(tmp_path)
