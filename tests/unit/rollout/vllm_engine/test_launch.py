"""The command line and environment of a vLLM server."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from seamlessflow.producers.rollout.settings import VllmSection
from seamlessflow.producers.rollout.vllm_engine.launch import INSIDE, Launch, launch
from tests.paths import ROOT

MINE = {"PATH": "/bin", "PYTHONPATH": "/mine", "VIRTUAL_ENV": "/mine", "CUDA_VISIBLE_DEVICES": "1"}


def launched(**settings: object) -> Launch:
    section = VllmSection.model_validate(settings)
    return launch(section, 16, Path("/weights/version-3"), 8123, MINE)


def value(made: Launch, name: str) -> str | None:
    words = made.command
    return words[words.index(name) + 1] if name in words else None


def test_a_server_is_for_this_machine_and_this_worker_alone() -> None:
    made = launched(python="/env/bin/python", dtype="bfloat16", kv_bytes=1024)
    assert made.command[:2] == ("/env/bin/python", "-m")
    assert (value(made, "--host"), value(made, "--port")) == ("127.0.0.1", "8123")
    assert value(made, "--model") == "/weights/version-3"
    assert (value(made, "--max-num-seqs"), value(made, "--dtype")) == ("16", "bfloat16")
    assert value(made, "--kv-cache-memory-bytes") == "1024"


def test_it_listens_on_loopback_whatever_its_arguments_say() -> None:
    command = launched(arguments=["--config", "theirs.yaml"]).command
    assert command[-4:] == ("--host", "127.0.0.1", "--port", "8123")
    for argument in ("--host=0.0.0.0", "--port", "--uds"):
        with pytest.raises(ValidationError, match="listens on loopback"):
            launched(arguments=[argument])


@pytest.mark.parametrize("url", ["http://10.0.0.1:8000", "http://gpu-1:8000", "http://0.0.0.0:1"])
def test_a_server_of_another_machine_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="loopback"):
        VllmSection(url=url)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost:8000", "http://127.0.0.1:8000/v1"])
def test_an_address_that_is_no_url_of_a_whole_server_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match=r"must be (a|the) URL"):
        VllmSection(url=url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:1"])
def test_a_server_of_this_machine_may_run_already(url: str) -> None:
    assert VllmSection(url=url).url == url


def test_no_setting_of_this_project_reaches_it() -> None:
    secret = {"SEAMLESSFLOW_KAFKA__OPTIONS": '{"sasl.password": "hidden"}'}
    made = launch(VllmSection(), 1, Path("/weights"), 8123, MINE | secret)
    assert "hidden" not in str(made.environment)
    assert "hidden" not in repr(made)


def test_only_vllm_has_a_server_among_the_engines() -> None:
    serving = re.compile(
        r"^\s*(import|from) (uvicorn|socketserver|http\.server)|start_server\(|\.(listen|bind)\(",
        re.M,
    )
    modules = (ROOT / "producers" / "rollout").rglob("*.py")
    assert [path.name for path in modules if serving.search(path.read_text())] == []


def test_what_is_not_said_is_left_to_vllm() -> None:
    made = launched(kv_bytes=None)
    assert value(made, "--kv-cache-memory-bytes") is value(made, "--max-model-len") is None
    assert value(launched(max_length=256), "--max-model-len") == "256"


def test_log_probabilities_follow_the_temperature_and_sampling_defaults_are_not_the_models() -> (
    None
):
    made = launched()
    assert value(made, "--logprobs-mode") == "processed_logprobs"
    assert value(made, "--generation-config") == "vllm"


def test_nothing_of_this_python_reaches_it_and_it_reaches_no_network() -> None:
    environment = launched().environment
    assert environment["PYTHONPATH"] == str(INSIDE)
    assert "VIRTUAL_ENV" not in environment
    assert (environment["PATH"], environment["CUDA_VISIBLE_DEVICES"]) == ("/bin", "1")
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == "1"


def test_threads_are_bound_to_no_core() -> None:
    environment = launched(threads=2).environment
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert environment["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in launched().environment


def test_with_few_threads_no_two_processes_wait_for_each_other_without_sleep() -> None:
    few = launched(threads=2)
    assert value(few, "--distributed-executor-backend") == "uni"
    assert few.environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "--distributed-executor-backend" not in launched().command


def test_memory_can_be_freed_on_a_gpu_alone() -> None:
    assert "--enable-sleep-mode" in launched(gpu=True).command
    assert "--enable-sleep-mode" not in launched().command


def test_further_arguments_win_over_all_but_the_address() -> None:
    command = launched(arguments=["--dtype", "float16"]).command
    assert command[-6:] == ("--dtype", "float16", "--host", "127.0.0.1", "--port", "8123")


def test_the_devices_of_a_worker_share_each_pass_or_the_turns() -> None:
    shared = launched(tensor_parallel=2, threads=1)
    assert value(shared, "--tensor-parallel-size") == "2"
    assert value(shared, "--data-parallel-size") is None
    # Its ranks are processes.
    assert value(shared, "--distributed-executor-backend") is None
    copies = launched(replicas=3)
    assert value(copies, "--data-parallel-size") == "3"
    assert value(copies, "--max-num-seqs") == "6"
    assert value(copies, "--tensor-parallel-size") is None


def test_a_copy_of_the_model_takes_its_part_of_the_devices() -> None:
    section = VllmSection(replicas=2)
    assert section.over(8).tensor_parallel == 4
    assert section.over(0) == section.over(1) == section
