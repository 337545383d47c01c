from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.model import NOT_TRAINED, Demonstrator, make_model, warm_up
from seamlessflow.demo.task import LOOKUP
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.tokens import pack, unpack


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    make_model(made, 0)
    return made


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return load_file(directory / "model.safetensors")


def same(first: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return first.keys() == other.keys() and all(first[name].equal(other[name]) for name in first)


def test_the_seed_decides_the_weights_and_nothing_else_is_touched(
    directory: Path, tmp_path: Path
) -> None:
    state = torch.get_rng_state()
    make_model(tmp_path / "same", 0)
    make_model(tmp_path / "other", 1)
    assert torch.get_rng_state().equal(state)
    assert same(weights(directory), weights(tmp_path / "same"))
    assert not same(weights(directory), weights(tmp_path / "other"))


def test_the_directory_is_whole(directory: Path) -> None:
    config = AutoConfig.from_pretrained(directory)
    renderer = Renderer.load(directory, RENDERER)
    assert config.eos_token_id in renderer.stop_token_ids
    assert config.vocab_size > max(unpack(renderer.encode("<|im_end|></think>")))
    assert sum(tensor.numel() for tensor in weights(directory).values()) < 150_000


def test_the_warm_up_changes_the_weights_the_same_way_each_time(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    for name in ("one", "other"):
        make_model(tmp_path / name, 0)
        warm_up(tmp_path / name, 0, lambda step, steps, _: progress.append((step, steps)), steps=2)
    assert progress == [(1, 2), (2, 2)] * 2
    assert same(weights(tmp_path / "one"), weights(tmp_path / "other"))
    make_model(tmp_path / "other", 0)
    assert not same(weights(tmp_path / "one"), weights(tmp_path / "other"))


def test_only_what_the_model_says_is_learnt(directory: Path) -> None:
    renderer = Renderer.load(directory, RENDERER)
    ids_BT, targets_BT = Demonstrator(renderer, 0).batch(4)
    learnt = [int(token) for token in targets_BT[0] if token != NOT_TRAINED]
    text = renderer.decode(pack(learnt))
    call, answer = text.split("<|im_end|>")[:2]
    assert renderer.parse(renderer.encode(call), [LOOKUP]).tool_calls[0].name == "lookup"
    assert answer.startswith("code ")
    assert ids_BT.shape == targets_BT.shape == (4, 41)
    trained_BT = targets_BT != NOT_TRAINED
    assert ids_BT[trained_BT].equal(targets_BT[trained_BT])


def test_the_demonstrator_is_mostly_wrong(directory: Path) -> None:
    renderer = Renderer.load(directory, RENDERER)
    demonstrator = Demonstrator(renderer, 0)
    digits = {unpack(renderer.encode(str(digit)))[0] for digit in range(10)}
    right = 0
    for _ in range(500):
        ids_BT, _ = demonstrator.batch(1)
        asked, called, result, answered = [int(i) for i in ids_BT[0] if int(i) in digits]
        right += asked == called and result == answered
    assert 0.05 < right / 500 < 0.25
