"""Earlier policies that a loss of pairs compares with: which they are, and a checkpoint of them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, Column, credited
from seamlessflow.trainer.data.credit.phase import by_chain
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import some_chains
from tests.builders.trainer.models import write_tiny

OPPONENTS = (Column.OPPONENT_1, Column.OPPONENT_2)
CHAINS = some_chains(3)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("policy"))


def opened(policy: Path, **opponents: object) -> TorchBackend:
    section = {
        "device": "cpu",
        "threads": 1,
        "loss": {"surrogate": "pairs_squared"},
        "pairs": {"opponents": {"every": 2, **opponents}},
        "optimizer": {"lr": 0.1},
    }
    backend = TorchBackend(policy, TrainerSection.model_validate(section))
    backend.load(None, 0)
    backend.acquire()
    return backend


def logprobs(backend: TorchBackend, name: Column) -> list[float]:
    """Return a column of the trained tokens, with which a step may have been ended half-way."""
    packed = pack(CHAINS, 32, "padded")
    columns = by_chain(CHAINS, packed, backend.annotate(packed, [name]))
    return [value for of_chain in columns for value in of_chain[name].tolist()]


def stepped(backend: TorchBackend, version: int, chains: list[Chain] = CHAINS) -> list[float]:
    """Train a step; return the log-probs under the policy that it made."""
    made = [credited(chain, 1.0) for chain in chains]
    backend.train(StepInput(pack(made, 32, "padded"), [], 0, 0.1))
    backend.remember(version)
    return logprobs(backend, Column.PROXIMAL)


def opponents(backend: TorchBackend) -> list[list[float]]:
    return [logprobs(backend, name) for name in OPPONENTS]


def test_opponents_are_the_policy_of_every_so_many_steps_the_newest_first(policy: Path) -> None:
    backend = opened(policy)
    initial = logprobs(backend, Column.PROXIMAL)
    made = [initial]
    assert opponents(backend) == [initial, initial]
    expected = {1: (0, 0), 2: (2, 0), 3: (2, 0), 4: (4, 2), 5: (4, 2), 6: (6, 4)}
    for version, (newest, oldest) in expected.items():
        made.append(stepped(backend, version))
        assert opponents(backend) == [made[newest], made[oldest]], version


@pytest.mark.parametrize("saved", [3, 5], ids="behind {}".format)
def test_opponents_go_on_from_a_checkpoint_to_the_digit(
    policy: Path, tmp_path: Path, saved: int
) -> None:
    first = opened(policy)
    for version in range(1, saved + 1):
        stepped(first, version)
    first.snapshot()
    first.save(tmp_path)
    second = opened(policy)
    second.load(tmp_path, saved)
    assert opponents(second) == opponents(first)
    for version in range(saved + 1, saved + 4):
        assert stepped(second, version) == stepped(first, version)
        assert opponents(second) == opponents(first)


def test_a_trainer_that_ends_between_two_opponents_computes_the_same_columns_again(
    policy: Path, tmp_path: Path
) -> None:
    first = opened(policy)
    for version in range(1, 5):
        stepped(first, version)
    first.snapshot()
    first.save(tmp_path)
    newest = logprobs(first, Column.OPPONENT_1)
    again = opened(policy)
    again.load(tmp_path, 4)
    assert logprobs(again, Column.OPPONENT_1) == newest
    assert logprobs(again, Column.OPPONENT_2) == logprobs(first, Column.OPPONENT_2)
    assert newest != logprobs(again, Column.OPPONENT_2)


def test_a_checkpoint_names_the_versions_of_the_opponents(policy: Path, tmp_path: Path) -> None:
    backend = opened(policy)
    for version in range(1, 7):
        stepped(backend, version)
    backend.snapshot()
    backend.save(tmp_path)
    saved = load_file(tmp_path / "opponent-versions.safetensors")
    assert sorted(saved["versions"].tolist()) == [4, 6]
    assert saved["steps"].item() == 6


def test_a_checkpoint_of_another_number_of_opponents_is_refused(
    policy: Path, tmp_path: Path
) -> None:
    three = opened(policy, most=3)
    three.snapshot()
    three.save(tmp_path)
    with pytest.raises(
        ModelUnusable, match=r"has 3 opponents: set trainer\.pairs\.opponents\.most"
    ):
        opened(policy).load(tmp_path, 1)


def test_a_checkpoint_of_a_run_without_opponents_begins_with_the_initial_policy(
    policy: Path, tmp_path: Path
) -> None:
    section = {"device": "cpu", "threads": 1, "optimizer": {"lr": 0.1}}
    before = TorchBackend(policy, TrainerSection.model_validate(section))
    before.load(None, 0)
    before.acquire()
    initial = logprobs(before, Column.PROXIMAL)
    stepped(before, 1)
    before.snapshot()
    before.save(tmp_path)
    after = opened(policy)
    after.load(tmp_path, 1)
    assert opponents(after) == [initial, initial]
    assert logprobs(after, Column.PROXIMAL) != initial


def test_weights_of_opponents_are_not_those_of_the_policy_in_memory(policy: Path) -> None:
    backend = opened(policy, every=1)
    first = stepped(backend, 1)
    second = stepped(backend, 2)
    assert torch.tensor(first).ne(torch.tensor(second)).any()
    assert opponents(backend) == [second, first]
