"""The cache of renderers, including policies whose renderer cannot be made."""

import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.trajectories.matching.renderers import Renderers
from infra.rendering.settings import RendererError, RendererSettings
from schemas.records import PolicyWeights
from seamlessflow.demo.tokenizer import make_tokenizer
from tests.builders.trajectories.decisions import WEIGHTS


def policy(directory: Path) -> PolicyWeights:
    return replace(
        WEIGHTS,
        tokenizer_directory=str(directory),
        renderer=RendererSettings("qwen3").to_json(),
    )


def test_a_policy_that_could_not_be_rendered_is_tried_with_its_next_weights(tmp_path: Path) -> None:
    renderers, weights = Renderers(), policy(tmp_path / "tokenizer")
    renderers.prepare(weights)
    make_tokenizer(tmp_path / "tokenizer")
    with pytest.raises(RendererError):
        renderers.of(weights)

    renderers.prepare(weights)

    assert renderers.of(weights).encode("x")


def test_who_asks_for_what_cannot_be_rendered_leaves_nothing_behind(tmp_path: Path) -> None:
    renderers, weights = Renderers(), policy(tmp_path)
    frames = []
    for _ in range(3):
        with pytest.raises(RendererError) as refused:
            renderers.of(weights)
        frames.append(len(traceback.extract_tb(refused.value.__traceback__)))

    assert frames[1] == frames[2]
