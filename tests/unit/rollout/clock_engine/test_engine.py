"""The clock engine by its settings: modelled times, roles, and what it reports of them."""

from contextlib import closing
from pathlib import Path

import pytest

from seamlessflow.infra.device_model.presets import hardware_named
from seamlessflow.infra.device_model.rates import ModelTooLarge
from seamlessflow.infra.device_model.settings import DeviceModelSection, worker_rates
from seamlessflow.infra.weights.manifest import Manifest, publish
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.clock_engine.engine import ClockEngine, ClockEngineSettings
from seamlessflow.producers.rollout.engine.contract import EngineHealth, SamplingParams
from seamlessflow.producers.rollout.engines import ClockEngines, WeightsUnsupported
from seamlessflow.producers.rollout.settings import RolloutSection
from tests.builders.rollout.clock_turns import answers
from tests.builders.rollout.completions import LetterParser
from tests.builders.rollout.generation import Generation
from tests.waiting import until

DEVICES = DeviceModelSection(hardware="B200", model="Qwen3-0.6B")


def scaled(scale: float) -> DeviceModelSection:
    return DEVICES.model_copy(update={"scale": scale})


def served(scale: float) -> EngineHealth:
    """Return the figures of an engine that sampled 32 turns of 64 tokens at once."""
    section = scaled(scale)
    rates = worker_rates(section, 1, rows=32).scaled(section.scale)
    with closing(ClockEngine(ClockEngineSettings(rates=rates), answers(64))) as engine:
        engine.pause("keep")
        turns = [
            Generation(
                engine, [number] * 100, SamplingParams(64, stop_token_ids=(99,)), f"{number}"
            )
            for number in range(32)
        ]
        engine.resume()
        assert {turn.finish() for turn in turns} == {"stop"}
        assert {len(turn.completion) for turn in turns} == {64}
        until(lambda: engine.health().running == 0)
        return engine.health()


def test_reported_times_are_those_of_the_device_model_at_every_scale() -> None:
    rates = worker_rates(DEVICES, 1, rows=32)
    passes_s = sum(
        rates.batch_s(32) + rates.context_s * 32 * (100 + number + 0.5) for number in range(64)
    )
    expected_s = 32 * rates.prompt(100) + passes_s

    for scale in (1.0, 0.1):
        health = served(scale)
        assert health.busy_seconds == pytest.approx(scale * expected_s)
        # A batch of 32 rows is full.
        assert health.full_batch_seconds == pytest.approx(health.busy_seconds)
        assert health.sampled_tokens == 32 * 64


def test_an_engine_that_sleeps_leaves_the_memory_of_its_device_free() -> None:
    settings = ClockEngineSettings(
        rates=worker_rates(DEVICES, 1).scaled(1e-4),
        memory_bytes=7,
    )
    with closing(ClockEngine(settings, answers())) as engine:
        engine.pause("keep")
        assert engine.sleep() == 7
        assert engine.sleep() == 7
        engine.wake()


def test_the_factory_takes_devices_and_capacity_of_the_worker() -> None:
    section = RolloutSection(engine="clock", devices=(0, 1), capacity=5)
    devices = scaled(1e-3)

    with closing(
        ClockEngines(section, devices).build(PublishedWeights(4, 4, "", ""), LetterParser())
    ) as engine:
        health = engine.health()
        engine.pause("keep")
        free = engine.sleep()

    assert (health.version, health.kv_rows, health.paused) == (4, 5, False)
    # Of each of the two devices, as the training process of the worker reports it.
    assert free == hardware_named(DEVICES.hardware).memory_bytes


def test_what_no_rehearsal_can_do_is_refused(tmp_path: Path) -> None:
    facts = Manifest(
        policy="p", version=1, optimizer_step=1, lineage="a", dtype="float32", kind="delta"
    )
    delta = publish(tmp_path, facts, lambda draft: None, sync=False).weights
    with pytest.raises(ModelTooLarge, match=r"Qwen2.5-72B needs 145 GB, 1 H100"):
        ClockEngines(RolloutSection(), DeviceModelSection(model="Qwen2.5-72B"))
    with pytest.raises(WeightsUnsupported, match="kind delta"):
        ClockEngines(RolloutSection(), DeviceModelSection()).verify(delta)
