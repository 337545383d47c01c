"""The tokenizer of a worker is that of the trainer."""

from pathlib import Path

import pytest

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings, rendering_hash
from seamlessflow.producers.rollout.bootstrap import load_parser
from tests.builders.records import fleet

SETTINGS = RendererSettings("qwen3")


def test_another_tokenizer_than_the_trainers_is_refused_with_both_hashes(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    digest = rendering_hash(tmp_path, SETTINGS)
    named = {"tokenizer_directory": str(tmp_path), "renderer": SETTINGS.to_json()}
    assert load_parser(fleet.weights(**named, tokenizer_hash=digest))
    reason = f"{tmp_path} has the hash {digest}, the trainer's other"
    with pytest.raises(RendererError, match=reason) as wrong:
        load_parser(fleet.weights(**named, tokenizer_hash="other"))
    assert wrong.value.process_status(ready=True) is ExitStatus.LASTING


def test_a_tokenizer_that_the_host_does_not_see_yet_may_be_there_at_another_start(
    tmp_path: Path,
) -> None:
    named = {"tokenizer_directory": str(tmp_path), "renderer": SETTINGS.to_json()}
    with pytest.raises(RendererError, match=r"tokenizer\.json is missing") as unseen:
        load_parser(fleet.weights(**named))
    assert unseen.value.process_status(ready=True) is ExitStatus.PASSING
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(RendererError) as broken:
        load_parser(fleet.weights(**named))
    assert broken.value.process_status(ready=True) is ExitStatus.LASTING
