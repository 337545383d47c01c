"""Devices that settings name, against those that exist."""

from typing import Any

import pytest

from seamlessflow.checks.devices import device_faults, divided_faults, modelled_faults
from seamlessflow.config_file import parse


def faults(gpus: int | None, **values: Any) -> list[str]:
    config = parse(values)
    return [
        fault.line(lambda path: ".".join(map(str, path))) for fault in device_faults(config, gpus)
    ]


def worker(device: str, **environment: str) -> list[dict[str, object]]:
    tags = ["rollout", "train"]
    return [{"id": "a", "tags": tags, "device": device, "environment": environment}]


@pytest.mark.parametrize(
    ("device", "gpus", "text"),
    [
        ("cuda:1", 1, "there is no cuda:1; this machine has cuda:0 alone"),
        ("cuda:8", 8, "there is no cuda:8; this machine has cuda:0 to cuda:7"),
        ("cuda", 0, "there is no cuda; this machine has no GPU"),
        ("gpu", 1, "'gpu' is no device, such as cpu or cuda:0; did you mean cuda?"),
        ("cuda:one", 1, "'cuda:one' is no device, such as cpu or cuda:0; did you mean cuda?"),
    ],
)
def test_a_device_that_does_not_exist_is_named(device: str, gpus: int, text: str) -> None:
    assert faults(gpus, workers=worker(device)) == [f"workers.0.device: {text}"]


@pytest.mark.parametrize(
    ("device", "gpus"), [("auto", 0), ("cpu", 0), ("cuda:0", 1), ("cuda:7", None), ("mps", 0)]
)
def test_a_device_that_exists_or_cannot_be_counted_is_accepted(
    device: str, gpus: int | None
) -> None:
    assert faults(gpus, workers=worker(device)) == []


@pytest.mark.parametrize(
    ("visible", "seen"),
    [("2,3", 2), ("3", 1), ("", 0), ("-1", 0), ("0,9,1", 1), ("GPU-ab,GPU-cd", 2)],
)
def test_a_worker_sees_the_gpus_of_its_environment(visible: str, seen: int) -> None:
    for number in range(4):
        messages = faults(4, workers=worker(f"cuda:{number}", CUDA_VISIBLE_DEVICES=visible))
        assert bool(messages) == (number >= seen)


def test_a_clock_needs_no_device_but_a_model_that_its_modelled_ones_can_hold() -> None:
    clock = {"backend": "clock", "device": "cuda:7"}
    workers = [{"id": "a", "tags": ["train"], "device": "cuda:1", "devices": [0, 1]}]
    assert faults(0, workers=workers, trainer=clock) == []
    large = parse({"workers": workers, "trainer": clock, "device_model": {"model": "Qwen2.5-72B"}})
    [fault] = modelled_faults(large)
    assert fault.path == ("device_model", "model")
    assert "needs 145 GB, 2 H100 have 160 GB" in fault.text


def test_a_clock_engine_needs_no_device_either() -> None:
    workers = [{"id": "a", "tags": ["rollout"], "device": "cuda:1"}]
    rollout = {"engine": "clock", "torch": {"device": "cuda:7"}}
    assert faults(0, workers=workers, rollout=rollout) == []
    large = {"workers": workers, "rollout": rollout, "device_model": {"model": "Qwen3-235B-A22B"}}
    [fault] = modelled_faults(parse(large))
    assert "needs 470 GB, 1 H100 have 80 GB" in fault.text
    assert list(modelled_faults(parse({**large, "rollout": {"engine": "scripted"}}))) == []


def test_devices_of_all_workers_are_those_of_their_sections() -> None:
    workers = [{"id": "a"}, {"id": "b", "tags": ["rollout", "train"]}]
    lines = faults(
        0, workers=workers, rollout={"torch": {"device": "cuda:0"}}, trainer={"device": "cuda:1"}
    )
    assert [line.split(":")[0] for line in lines] == ["rollout.torch.device", "trainer.device"]


def test_a_vllm_server_uses_all_devices_of_its_worker() -> None:
    def divided(**vllm: Any) -> list[str]:
        config = parse(
            {
                "workers": [{"id": "a", "tags": ["rollout"], "devices": [0, 1, 2, 3]}],
                "rollout": {"engine": "vllm", "vllm": vllm},
            }
        )
        return [fault.text for fault in divided_faults(config)]

    assert divided() == divided(replicas=2) == divided(replicas=2, tensor_parallel=2) == []
    stages = ["--pipeline-parallel-size=2"]
    assert divided(tensor_parallel=2, arguments=stages) == []
    has = "the worker has 4 devices"
    assert divided(replicas=3) == [f"replicas x tensor_parallel is 3 x 1, {has}"]
    assert divided(tensor_parallel=2) == [f"replicas x tensor_parallel is 1 x 2, {has}"]
    assert divided(replicas=8) == [f"replicas x tensor_parallel is 8 x 1, {has}"]
    assert divided(tensor_parallel=8) and divided(tensor_parallel=4, arguments=stages)


def test_a_server_that_runs_already_is_for_one_worker_of_a_node() -> None:
    def shared(**last: Any) -> list[str]:
        config = parse(
            {
                "node": "n1",
                "workers": [{"id": "a"}, {"id": "b", **last}, {"id": "c", "tags": ["train"]}],
                "rollout": {"engine": "vllm", "vllm": {"url": "http://127.0.0.1:8000"}},
            }
        )
        return [str(fault) for fault in divided_faults(config)]

    other = {"SEAMLESSFLOW_ROLLOUT__VLLM__URL": "http://127.0.0.1:8001"}
    assert shared(environment=other) == shared(node="n2") == []
    (message,) = shared()
    assert "http://127.0.0.1:8000 is for one worker, not for a, b" in message
