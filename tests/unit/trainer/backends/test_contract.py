"""The contract of the back ends in a process, whatever computes: memory, weights, checkpoints."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from seamlessflow.infra.device_model.settings import DeviceModelSection
from seamlessflow.infra.weights.adapter import CONFIG
from seamlessflow.infra.weights.tensors import tensor_hashes
from seamlessflow.trainer.backends.adapter.whole_model import merge
from seamlessflow.trainer.backends.backend import (
    Computing,
    LocalBackend,
    ModelUnusable,
    StepInput,
    unmeasured,
)
from seamlessflow.trainer.backends.clock_backend import ClockBackend
from seamlessflow.trainer.backends.megatron.megatron_backend import MegatronBackend
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from tests.builders.trainer.chains import some_chains, with_advantages, with_returns
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.metric_names import is_listed
from tests.builders.trainer.models import write_tiny

Make = Callable[..., LocalBackend]
"""Returns the back end of a model's directory, which may tell when it computes."""


def clock(model: Path, note: Computing = unmeasured) -> LocalBackend:
    at_once = DeviceModelSection(scale=1e-9)
    settings = TrainerSettings(policy=PolicySection(model=model), device_model=at_once)
    with closing(meeting()) as way:
        return ClockBackend(settings, way, note)


def computing(model: Path, note: Computing = unmeasured) -> LocalBackend:
    return TorchBackend(model, TrainerSection(device="cpu", threads=1), note)


def headed(model: Path, note: Computing = unmeasured) -> LocalBackend:
    """Return one whose critic is a head that also trains the policy."""
    head = {"kind": "head", "coefficient": 0.1}
    settings = {"device": "cpu", "threads": 1, "advantage": "gae", "critic": head}
    return TorchBackend(model, TrainerSection.model_validate(settings), note)


def adapting(model: Path, note: Computing = unmeasured) -> LocalBackend:
    """Return one that trains an adapter alone."""
    settings = {"device": "cpu", "threads": 1, "adapter": {"rank": 2}}
    return TorchBackend(model, TrainerSection.model_validate(settings), note)


def divided(model: Path, note: Computing = unmeasured) -> LocalBackend:
    """Return one of Megatron-core, in place of any before it: a process is in one gang."""
    leave_gang()
    section = {"device": "cpu", "threads": 1, "backend": "megatron"}
    return MegatronBackend(model, TrainerSection.model_validate(section), meeting(), note)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(
    params=[computing, headed, adapting, divided, clock],
    ids=["torch", "head", "adapter", "megatron", "clock"],
)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: Make = request.param
    yield made
    leave_gang()


def step(seed: int = 0) -> StepInput:
    chains = with_advantages(some_chains(seed), [1.0, -1.0] * 3)
    return StepInput(pack(with_returns(chains), 64, "padded"), [], 0, 0.05)


def written(backend: LocalBackend, directory: Path, model: Path) -> Mapping[str, str]:
    """Return the hashes of the weights that a back end publishes, of an adapter with its base."""
    directory.mkdir()
    backend.write_weights(directory)
    if not (directory / CONFIG).exists():
        return tensor_hashes(directory)
    merge(model, directory, directory / "merged")
    return tensor_hashes(directory / "merged")


def test_only_in_a_step_something_is_computed(make: Make, model: Path, tmp_path: Path) -> None:
    notes: list[bool] = []
    backend = make(model, notes.append)
    backend.acquire()
    backend.train(step())
    backend.write_weights(tmp_path)
    backend.rest()
    # A rank of a gang waits for the others in between.
    assert notes
    assert notes == [True, False] * (len(notes) // 2)


def test_a_step_changes_the_weights_and_one_without_a_token_leaves_them(
    make: Make, model: Path, tmp_path: Path
) -> None:
    backend = make(model)
    assert all(is_listed(name) for name in backend.train(StepInput([], [], 0, 0.05)))
    untrained = written(backend, tmp_path / "untrained", model)
    assert untrained == tensor_hashes(model)
    assert all(is_listed(name) for name in backend.train(step()))
    trained = written(backend, tmp_path / "trained", model)
    assert trained.keys() == untrained.keys()
    assert trained != untrained


def test_who_may_read_a_directory_may_read_the_weights_in_it(
    make: Make, model: Path, tmp_path: Path
) -> None:
    """Rollout processes and servers of other users do, also of a merged adapter."""
    written(make(model), shared := tmp_path / "shared", model)
    readers = {path: path.stat().st_mode & 0o444 for path in shared.rglob("*")}
    assert {mode for path, mode in readers.items() if path.is_file()} == {
        shared.stat().st_mode & 0o444
    }


def test_a_checkpoint_has_the_state_of_its_snapshot(
    make: Make, model: Path, tmp_path: Path
) -> None:
    first = make(model)
    first.train(step())
    first.snapshot()
    first.train(step(1))
    saved = tmp_path / "checkpoint"
    saved.mkdir()
    first.save(saved)
    expected = written(first, tmp_path / "first", model)
    second = make(model)
    second.load(saved, 1)
    second.train(step(1))
    assert written(second, tmp_path / "second", model) == expected


def test_memory_can_be_given_back_and_taken_again(make: Make, model: Path) -> None:
    backend = make(model)
    assert backend.release() > 0
    for seed in range(2):
        backend.acquire()
        backend.train(step(seed))
        assert backend.release() > 0


def test_a_missing_model_or_checkpoint_is_a_typed_error(
    make: Make, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelUnusable):
        make(tmp_path / "nowhere")
    with pytest.raises(ModelUnusable):
        make(model).load(tmp_path, 1)
