"""The cache of renderers, including policies whose renderer cannot be made."""

import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.consumers.trajectories.matching.renderers import Renderers
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings, rendering_hash
from seamlessflow.schemas.records import PolicyWeights
from tests.builders.trajectories.decisions import WEIGHTS

SETTINGS = RendererSettings("qwen3")


def policy(directory: Path, tokenizer_hash: str = "") -> PolicyWeights:
    return replace(
        WEIGHTS,
        tokenizer_directory=str(directory),
        tokenizer_hash=tokenizer_hash,
        renderer=SETTINGS.to_json(),
    )


def test_a_policy_that_could_not_be_rendered_is_tried_with_its_next_weights(tmp_path: Path) -> None:
    renderers, weights = Renderers(), policy(tmp_path / "tokenizer")
    renderers.prepare(weights)
    make_tokenizer(tmp_path / "tokenizer")
    with pytest.raises(RendererError):
        renderers.for_policy(weights)

    renderers.prepare(weights)

    assert renderers.for_policy(weights).encode("x")


def test_another_tokenizer_than_the_trainers_is_refused_with_any_template_arguments(
    tmp_path: Path,
) -> None:
    make_tokenizer(tmp_path)
    digest = rendering_hash(tmp_path, SETTINGS)
    renderers, other = Renderers(), policy(tmp_path, "other")
    thinking = replace(SETTINGS, options={"enable_thinking": False}).to_json()
    renderers.prepare(other)
    for weights in (other, replace(other, renderer=thinking)):
        with pytest.raises(RendererError, match=f"{tmp_path} has the hash {digest}, the trainer's"):
            renderers.for_policy(weights)
    renderers.prepare(policy(tmp_path, digest))
    assert renderers.for_policy(replace(policy(tmp_path, digest), renderer=thinking)).encode("x")


def test_who_asks_for_what_cannot_be_rendered_leaves_nothing_behind(tmp_path: Path) -> None:
    renderers, weights = Renderers(), policy(tmp_path)
    frames = []
    for _ in range(3):
        with pytest.raises(RendererError) as refused:
            renderers.for_policy(weights)
        frames.append(len(traceback.extract_tb(refused.value.__traceback__)))

    assert frames[1] == frames[2]
