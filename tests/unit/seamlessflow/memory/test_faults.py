"""Models that a machine cannot hold are refused before anything starts, with the figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.check import before_training
from seamlessflow.checks.devices import device_faults
from seamlessflow.config_file import parse
from seamlessflow.machine import Capacity
from seamlessflow.memory.faults import free_memory_faults, memory_faults
from tests.builders.run_files import changed, faults, model_headers, run_values

H100S = Capacity(device_bytes=80e9, host_bytes=2e12, gpus=8)
FITTING = {"backend": "fsdp2", "ranks": 8, "dtype": "bfloat16", "device": "cuda"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_headers(tmp_path_factory.mktemp("model"))


def fault_lines(model: Path, machine: Capacity, **sections: Any) -> Sequence[str]:
    workers = [{"id": "a", "tags": ["rollout", "train"], "devices": list(range(8))}]
    engine = {"engine": "vllm", "vllm": {"gpu": True, "kv_bytes": 8 * 2**30}}
    values: Mapping[str, Any] = {
        "workers": workers,
        "policy": {"model": model},
        "rollout": engine,
        **sections,
    }
    config = parse(values)
    return [
        fault.line(lambda path: ".".join(map(str, path)))
        for fault in memory_faults(config, machine)
    ]


def test_a_model_that_fits_on_its_gang_is_accepted(model: Path) -> None:
    assert fault_lines(model, H100S, trainer=FITTING) == []


def test_a_model_too_large_for_a_device_is_refused_with_its_parts_and_a_remedy(
    model: Path,
) -> None:
    alone = [{"id": "a", "tags": ["rollout", "train"], "device": "cuda"}]
    [line] = fault_lines(model, H100S, workers=alone, trainer={"dtype": "bfloat16"})
    assert line.startswith("policy.model: needs at least 122.6 GiB of each device of a to train")
    assert "(weights (float32) 30.5 GiB, gradients (float32) 30.5 GiB, moments (float32)" in line
    assert ", which has 74.5 GiB: " in line
    assert "seamlessflow plan tells each part" in line


def test_a_remedy_is_named_that_is_enough(tmp_path: Path) -> None:
    small = model_headers(tmp_path, num_hidden_layers=20)
    alone = [{"id": "a", "tags": ["train"], "device": "cuda"}]
    trainer = {"gradient_checkpointing": True, "dtype": "bfloat16"}
    [line] = fault_lines(
        small,
        H100S,
        workers=alone,
        trainer=trainer,
        policy={"model": small, "max_context": 8192},
    )
    assert "74.5 GiB: set trainer.backend fsdp2, trainer.ranks 2 or " in line


def test_an_engine_whose_devices_cannot_hold_the_weights_is_refused(model: Path) -> None:
    small = Capacity(device_bytes=8e9, host_bytes=2e12, gpus=8)
    rolling = [{"id": "a", "tags": ["rollout"]}]
    published = {"dtype": "bfloat16"}
    [line] = fault_lines(model, small, workers=rolling, trainer=published)
    assert "needs at least 15.3 GiB of each device of a, which has 7.5 GiB" in line
    spread = [{"id": "a", "tags": ["rollout"], "devices": [0, 1, 2, 3]}]
    assert fault_lines(model, small, workers=spread, trainer=published) == []


def test_memory_that_other_programs_hold_is_missing(model: Path) -> None:
    config = parse({"workers": [{"id": "a", "tags": ["train"]}], "policy": {"model": model}})
    host = Capacity(None, 2e12, 0)
    [fault] = free_memory_faults(config, host, free=2.0**31)
    assert fault.text.startswith("needs at least 213.6 GiB of memory, and 2.0 GiB are free now: ")
    assert not list(free_memory_faults(config, host, free=2e12))
    assert not list(free_memory_faults(config, host, free=None))


def test_a_host_must_hold_what_leaves_the_devices(model: Path) -> None:
    small = Capacity(device_bytes=80e9, host_bytes=100e9, gpus=8)
    [line] = fault_lines(model, small, trainer=FITTING)
    # Weights and moments, the copy for a checkpoint, and the weights of the sleeping engine.
    assert "needs at least 198.3 GiB of this host, which has 93.1 GiB" in line


def test_an_allowance_for_weights_without_their_role_counts(model: Path) -> None:
    [line] = fault_lines(model, H100S, trainer={**FITTING, "offload_mb": 1024})
    assert line.startswith("trainer.offload_mb: a moves 91.5 GiB of weights and optimizer to its")
    assert "1024 MiB are allowed" in line
    assert fault_lines(model, H100S, trainer={**FITTING, "offload_mb": 93_750}) == []
    apart = [
        {"id": "a", "tags": ["train"], "devices": list(range(8))},
        {"id": "b", "tags": ["rollout"]},
    ]
    trainer = {**FITTING, "offload_mb": 0}
    assert fault_lines(model, H100S, workers=apart, trainer=trainer) == []


def test_a_cpu_run_needs_the_memory_of_its_host(model: Path, tmp_path: Path) -> None:
    values = run_values(tmp_path)
    fitting = changed(values, "policy", max_context=2048)
    assert not [line for line in faults(fitting, before_training) if "needs" in line]
    large = changed(fitting, "policy", model=model_headers(tmp_path / "l", num_hidden_layers=1000))
    lines = faults(changed(large, "trainer", device="cpu"), before_training)
    assert [line for line in lines if "policy.model: needs at least" in line and "host" in line]


def test_unknown_memory_refuses_nothing(model: Path) -> None:
    assert fault_lines(model, Capacity(None, None, None), trainer=FITTING) == []


@pytest.mark.parametrize(
    ("trainer", "gpus", "refused"),
    [
        ({"device": "cuda"}, 4, True),
        ({"device": "auto"}, 4, True),
        ({"device": "auto"}, 8, False),
        ({"device": "cpu"}, 4, False),
        ({"device": "auto"}, 0, False),
        ({"device": "auto"}, None, False),
    ],
)
def test_more_devices_than_the_host_has_are_refused(
    trainer: dict[str, str], gpus: int | None, refused: bool
) -> None:
    workers = [{"id": "a", "tags": ["train"], "devices": list(range(8))}]
    config = parse({"workers": workers, "trainer": trainer})
    lines = [
        fault.line(lambda path: ".".join(map(str, path))) for fault in device_faults(config, gpus)
    ]
    text = "workers.0.devices: there is no cuda:7; this machine has cuda:0 to cuda:3"
    assert lines == ([text] if refused else [])


def test_a_vllm_engine_counts_its_devices_too() -> None:
    workers = [{"id": "a", "tags": ["rollout"], "devices": [0, 1, 2]}]
    config = parse({"workers": workers, "rollout": {"engine": "vllm", "vllm": {"gpu": True}}})
    [fault] = device_faults(config, 2)
    assert fault.path == ("workers", 0, "devices")
    assert list(device_faults(config, 3)) == []


def torch_engine(model: Path, max_context: int, **torch: Any) -> Sequence[str]:
    sections = {"policy": {"model": model, "max_context": max_context}}
    rolling = [{"id": "a", "tags": ["rollout"]}]
    machine = Capacity(device_bytes=None, host_bytes=2e12, gpus=0)
    return fault_lines(
        model, machine, workers=rolling, rollout={"engine": "torch", "torch": torch}, **sections
    )


def test_the_torch_engine_must_hold_one_turn_of_the_policys_length(model: Path) -> None:
    # Of Qwen3-8B in float32: 36 layers x 2 x 8 heads x 128 x 4 bytes.
    turn = 8192 * 294_912
    [line] = torch_engine(model, 8192, kv_bytes=turn - 1)
    assert line == (
        "rollout.torch.kv_bytes: must hold keys and values of one turn of 8192 tokens, "
        f"{turn} bytes: raise it, or lower policy.max_context (got {turn - 1})"
    )
    assert torch_engine(model, 8192, kv_bytes=turn) == []


def test_the_models_own_limit_and_the_engines_bound_the_turn(model: Path, tmp_path: Path) -> None:
    turn = 1024 * 294_912
    short = model_headers(tmp_path, max_position_embeddings=1024)
    assert torch_engine(short, 8192, kv_bytes=turn) == []
    assert torch_engine(model, 8192, kv_bytes=turn, max_length=1024) == []


def vllm_engine(model: Path, max_context: int, **vllm: Any) -> Sequence[str]:
    sections = {"policy": {"model": model, "max_context": max_context}}
    rolling = [{"id": "a", "tags": ["rollout"], "devices": [0, 1]}]
    rollout = {"engine": "vllm", "vllm": {"gpu": True, "dtype": "bfloat16", **vllm}}
    return fault_lines(model, H100S, workers=rolling, rollout=rollout, **sections)


def test_vllm_must_hold_one_turn_of_the_policys_length_on_its_devices(model: Path) -> None:
    # Of Qwen3-8B in bfloat16 on each of two devices: 36 layers x 2 x 4 heads x 128 x 2 bytes.
    turn = 8192 * 73_728
    [line] = vllm_engine(model, 8192, kv_bytes=turn - 1)
    assert line == (
        "rollout.vllm.kv_bytes: must hold keys and values of one turn of 8192 tokens, "
        f"{turn} bytes: raise it, or lower policy.max_context (got {turn - 1})"
    )
    assert vllm_engine(model, 8192, kv_bytes=turn) == []
    assert vllm_engine(model, 8192, kv_bytes=turn - 1, max_length=4096) == []


@pytest.mark.parametrize(
    "vllm",
    [
        {"kv_bytes": None},
        {"url": "http://127.0.0.1:8000"},
        {"arguments": ["--kv-cache-dtype=fp8"]},
        {"arguments": ["--max-model-len", "1024"]},
    ],
)
def test_vllm_decides_itself_where_a_turn_may_take_less(model: Path, vllm: dict[str, Any]) -> None:
    assert vllm_engine(model, 8192, **{"kv_bytes": 10**6, **vllm}) == []


@pytest.mark.parametrize(
    ("config", "decides"),
    [
        ({"sliding_window": 512}, True),
        ({"layer_types": ["full_attention", "sliding_attention"]}, True),
        ({"sliding_window": 512, "use_sliding_window": False}, False),
        ({"sliding_window": None}, False),
    ],
)
def test_vllm_decides_itself_for_models_with_sliding_windows(
    tmp_path: Path, config: dict[str, Any], decides: bool
) -> None:
    lines = vllm_engine(model_headers(tmp_path, **config), 8192, kv_bytes=10**6)
    assert bool(lines) is not decides
