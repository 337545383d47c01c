"""The tokenizer of a worker is that of the trainer."""

from pathlib import Path

import pytest

from infra.rendering.settings import RendererError, RendererSettings, rendering_hash
from producers.rollout.bootstrap import load_parser
from seamlessflow.demo.tokenizer import make_tokenizer
from tests.builders.records import fleet

SETTINGS = RendererSettings("qwen3")


def test_another_tokenizer_than_the_trainers_is_refused_with_both_hashes(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    own = rendering_hash(tmp_path, SETTINGS)
    named = {"tokenizer_directory": str(tmp_path), "renderer": SETTINGS.to_json()}
    assert load_parser(fleet.weights(**named, tokenizer_hash=own))
    with pytest.raises(RendererError, match=f"{tmp_path} has the hash {own}, the trainer's other"):
        load_parser(fleet.weights(**named, tokenizer_hash="other"))
