"""Pausing, new weights, sleep and wake on the torch engine."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid, WeightsRejected
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import model, plain_logprobs, prompt, saved
from tests.builders.rollout.generation import Generation

TOLERANCE = 1e-4


def assert_agrees(
    generation: Generation, source: PreTrainedModel, start: int, end: int | None = None
) -> None:
    """Completion tokens [start, end) have the log-probabilities of `source`."""
    length = len(generation.prompt)
    logprobs = generation.logprobs[start:end]
    expected = plain_logprobs(source, generation.tokens, length)[start:end]
    np.testing.assert_allclose(logprobs, expected, rtol=0, atol=TOLERANCE)


def test_pause_keep_stalls_and_resume_goes_on_unchanged(start: StartEngine) -> None:
    sampling = SamplingParams(60, seed=3)
    untouched = Generation(start(model()), prompt(20), sampling)
    untouched.finish()
    engine = start(model())
    paused = Generation(engine, prompt(20), sampling, hold_at=15)
    paused.pause_when_held("keep")
    late = Generation(engine, prompt(4), SamplingParams(5), "late")
    assert len(paused.completion) == 15
    assert engine.health().running == 1
    engine.resume()
    assert paused.finish() == late.finish() == "length"
    assert paused.completion == untouched.completion
    np.testing.assert_allclose(paused.logprobs, untouched.logprobs, atol=1e-5)


def test_pause_abort_ends_all_that_is_there_and_queues_what_comes(start: StartEngine) -> None:
    engine = start(model(), max_running=1)
    running = Generation(engine, prompt(20), SamplingParams(400), "running", hold_at=15)
    waiting = Generation(engine, prompt(20), SamplingParams(400), "waiting")
    running.pause_when_held("abort")
    assert running.finish() == waiting.finish() == "abort"
    assert (len(running.completion), len(waiting.completion)) == (15, 0)
    later = Generation(engine, prompt(20), SamplingParams(10), "later")
    assert not later.chunks
    engine.resume()
    assert later.finish() == "length"


def test_a_weight_change_in_mid_generation_switches_policy_at_an_exact_token(
    start: StartEngine, tmp_path: Path
) -> None:
    old, new = model(seed=0), model(seed=1)
    engine = start(model(seed=0), version=6, prefill_tokens=64)
    first = Generation(engine, prompt(40), SamplingParams(90), "first")
    second = Generation(engine, prompt(7, 1), SamplingParams(70), "second", hold_at=30)
    second.pause_when_held("keep")
    switch = {each: len(each.completion) for each in (first, second)}
    engine.load_weights(saved(new, tmp_path), version=7)
    assert engine.health().version == 7
    engine.resume()
    for each, at in switch.items():
        assert each.finish() == "length"
        assert each.versions == [6] * at + [7] * (len(each.completion) - at)
        assert_agrees(each, old, 0, at)
        assert_agrees(each, new, at)
    assert switch[second] == 30


def test_weights_are_loaded_only_while_paused(start: StartEngine, tmp_path: Path) -> None:
    engine = start(model())
    with pytest.raises(EngineStateInvalid):
        engine.load_weights(saved(model(seed=1), tmp_path), version=1)
    with pytest.raises(EngineStateInvalid):
        engine.sleep()


@pytest.mark.parametrize("tied", [False, True])
def test_an_engine_from_a_directory_samples_from_its_weights(
    tied: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = model(seed=4, tied=tied)
    directory = saved(source, tmp_path)
    capfd.readouterr()
    engine = TorchEngine.from_directory(directory, TorchEngineSettings(), version=2)
    assert capfd.readouterr().err == "", "a progress bar"
    generation = Generation(engine, prompt(20), SamplingParams(30))
    generation.finish()
    engine.close()
    assert_agrees(generation, source, 0)
    assert set(generation.versions) == {2}


def test_tied_weights_load_with_and_without_their_second_name(
    start: StartEngine, tmp_path: Path
) -> None:
    new = model(seed=1, tied=True)
    engine = start(model(seed=0, tied=True))
    engine.pause("keep")
    (tmp_path / "both").mkdir()
    both = {name: tensor.clone() for name, tensor in new.state_dict().items()}
    save_file(both, tmp_path / "both" / "model.safetensors")
    for version, directory in enumerate((saved(new, tmp_path / "one"), tmp_path / "both"), start=1):
        engine.load_weights(directory, version)
    engine.resume()
    generation = Generation(engine, prompt(20), SamplingParams(30))
    generation.finish()
    assert_agrees(generation, new, 0)


def broken_weights(kind: str) -> dict[str, torch.Tensor]:
    tensors = {name: tensor.clone() for name, tensor in model(seed=1).state_dict().items()}
    if kind == "missing":
        del tensors["model.norm.weight"]
    elif kind == "unknown":
        tensors["model.other.weight"] = torch.zeros(3)
    elif kind == "shape":
        tensors["model.norm.weight"] = torch.ones(63)
    elif kind == "finite":
        tensors["model.norm.weight"][3] = float("inf")
    return tensors


@pytest.mark.parametrize("kind", ["missing", "unknown", "shape", "finite", "cannot be read"])
def test_weights_that_do_not_fit_leave_the_engine_paused_and_unharmed(
    kind: str, start: StartEngine, tmp_path: Path
) -> None:
    engine = start(model(seed=0), version=3)
    kept = Generation(engine, prompt(20), SamplingParams(40), hold_at=9)
    kept.pause_when_held("keep")
    save_file(broken_weights(kind), tmp_path / "model.safetensors")
    if kind == "cannot be read":
        whole = (tmp_path / "model.safetensors").read_bytes()
        (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsRejected, match=kind) as rejected:
        engine.load_weights(tmp_path, version=4)
    assert rejected.value.directory == tmp_path
    assert engine.health().paused
    assert engine.health().version == 3
    engine.resume()
    kept.finish()
    assert_agrees(kept, model(seed=0), 0)
    assert set(kept.versions) == {3}


def test_a_directory_without_weights_is_rejected(start: StartEngine, tmp_path: Path) -> None:
    engine = start(model())
    engine.pause("keep")
    with pytest.raises(WeightsRejected):
        engine.load_weights(tmp_path, version=1)


def test_sleep_frees_the_kv_and_kept_requests_go_on_after_waking(
    start: StartEngine, tmp_path: Path
) -> None:
    engine = start(model(seed=0))
    kept = Generation(engine, prompt(30), SamplingParams(60), hold_at=20)
    kept.pause_when_held("keep")
    assert engine.health().kv_bytes > 0
    assert engine.sleep() > engine.health().kv_bytes == 0
    assert (engine.health().kv_bytes, engine.health().asleep) == (0, True)
    with pytest.raises(EngineStateInvalid):
        engine.resume()
    engine.load_weights(saved(model(seed=1), tmp_path), version=1)
    engine.wake()
    engine.resume()
    kept.finish()
    assert_agrees(kept, model(seed=0), 0, 20)
    assert_agrees(kept, model(seed=1), 20)


def test_waking_without_new_weights_goes_on_with_the_old(start: StartEngine) -> None:
    engine = start(model())
    kept = Generation(engine, prompt(30), SamplingParams(60), hold_at=20)
    kept.pause_when_held("keep")
    engine.sleep()
    engine.wake()
    engine.resume()
    assert kept.finish() == "length"
    assert_agrees(kept, model(), 0)


def test_a_turn_may_end_after_waking_before_all_others_have_kv_again(start: StartEngine) -> None:
    engine = start(model(), prefill_tokens=32)
    engine.pause("keep")
    shortest = Generation(engine, prompt(10, 9), SamplingParams(4), "shortest", hold_at=3)
    others = [Generation(engine, prompt(30, i), SamplingParams(40), f"other {i}") for i in range(3)]
    engine.resume()
    shortest.pause_when_held("keep")
    engine.sleep()
    engine.wake()
    engine.resume()
    for each in (shortest, *others):
        assert each.finish() == "length"
        assert_agrees(each, model(), 0)
