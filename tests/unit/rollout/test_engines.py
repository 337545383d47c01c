"""The factory of vLLM engines: what it needs before the worker has a role."""

from pathlib import Path

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.producers.rollout.engines import engine_factory
from seamlessflow.producers.rollout.settings import RolloutSettings


def with_vllm(tmp_path: Path, **vllm: object) -> RolloutSettings:
    rollout = {"engine": "vllm", "vllm": {"python": tmp_path / "nowhere", **vllm}}
    return RolloutSettings.model_validate({"rollout": rollout, "data_dir": tmp_path})


def test_a_server_that_is_started_here_needs_its_python(tmp_path: Path) -> None:
    with pytest.raises(SettingsRejected, match="there is no program "):
        engine_factory(with_vllm(tmp_path))


def test_a_server_that_runs_already_needs_none(tmp_path: Path) -> None:
    assert engine_factory(with_vllm(tmp_path, url="http://127.0.0.1:8000"))
