"""Directories of a real model in which something is missing, or does not fit: each is named."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.infra.rendering.model_template.discovery import found_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.schemas.tokens import unpack
from tests.builders.run_files import AGENT, faults

pytestmark = pytest.mark.real
TEMPLATE = "chat_template.jinja"
ASKED = {"role": "user", "content": "one"}


@pytest.fixture
def copied(smollm2: Path, tmp_path: Path) -> Path:
    """Return a copy of the model whose files may be changed; its weights are those of the model."""
    directory = tmp_path / "copied"
    directory.mkdir()
    for file in smollm2.iterdir():
        if file.suffix == ".safetensors":
            os.link(file, directory / file.name)
        else:
            shutil.copy(file, directory)
    return directory


def faults_of(model: Path, **policy: Any) -> Sequence[str]:
    """Return what a training says of the model before it starts."""
    folder = model.parent
    (folder / "tasks.jsonl").write_text('{"id": "1"}\n')
    (folder / "my_agent.py").write_text(AGENT)
    return faults(
        {
            "out": folder / "out",
            "policy": {"model": model, **policy},
            "pacing": {"tasks": folder / "tasks.jsonl"},
            "agents": {"callable": "my_agent:run"},
            "rollout": {"engine": "torch"},
        }
    )


def test_the_model_itself_has_no_fault(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied.parent)
    assert faults_of(copied) == ()


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "no chat_template.jinja in"),
        ("{{ raise_exception('never again') }}", "never again"),
        ("{% for %}", "chat template: Expected an expression"),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "turns have no end"),
    ],
    ids=["missing", "raises", "no template", "without ends"],
)
def test_a_template_that_cannot_be_used_is_named(
    copied: Path, monkeypatch: pytest.MonkeyPatch, template: str | None, reason: str
) -> None:
    monkeypatch.chdir(copied.parent)
    (copied / TEMPLATE).unlink()
    if template is not None:
        (copied / TEMPLATE).write_text(template)
    (fault,) = faults_of(copied)
    assert fault.startswith("policy.renderer: ") and reason in fault


def test_a_template_that_refuses_some_messages_is_used_for_others(copied: Path) -> None:
    template = copied / TEMPLATE
    refusal = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    )
    template.write_text(refusal + template.read_text())
    renderer = Renderer.load(copied, found_for(copied))
    assert renderer.render([ASKED])
    with pytest.raises(RendererError, match="no system"):
        renderer.render([{"role": "system", "content": "be brief"}, ASKED])


def test_the_tokenizer_of_a_larger_model_is_refused(
    copied: Path, coder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied.parent)
    shutil.copy(coder / "tokenizer.json", copied)
    (fault,) = faults_of(copied)
    assert "it is not the tokenizer of this model" in fault


def test_ids_that_only_the_embeddings_have_are_no_text(calling: Renderer, coder: Path) -> None:
    rows = json.loads((coder / "config.json").read_text())["vocab_size"]
    spelt = calling.encode("Paris")
    unused = (rows - 1).to_bytes(4, "little")
    assert calling.parse(spelt + unused).content in ("Paris", calling.decode(spelt + unused))
    suffix = calling.bridge(calling.render([ASKED]), spelt + unused, [ASKED])
    assert suffix is not None and len(unpack(suffix)) > 1
