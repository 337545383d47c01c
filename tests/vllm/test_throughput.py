"""The part of `scripts/test-gpu` that compares the whole system with its bare vLLM server."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.part import Asked
from benchmarks.gpu.vllm.throughput import Streams, compare
from seamlessflow.producers.rollout.settings import VllmSection

pytestmark = pytest.mark.vllm
STREAMS = Streams(streams=3, calls_a_stream=2, tokens_a_call=24, rounds=1)


def test_both_ways_bring_all_tokens_and_their_figures_are_json(
    section: VllmSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_ROLLOUT__VLLM__PYTHON", str(section.python))
    result: dict[str, Any] = dict(compare(Asked("cpu", tmp_path, small=True), STREAMS))
    assert json.loads(json.dumps(result)) == result
    assert (result["streams"], result["calls_a_stream"], result["tokens_a_call"]) == (3, 2, 24)
    for kind in ("plain", "streamed"):
        figures = result[kind]
        assert figures["bare_tokens"] == figures["tokens"] == 3 * 2 * 24
        assert min(figures[name] for name in ("bare_tokens_a_second", "tokens_a_second")) > 0
        assert figures["ratio"] > 0
        assert set(figures["cpu_s_a_1000_tokens"]) == {"kafka", "gateway", "manager", "worker"}
