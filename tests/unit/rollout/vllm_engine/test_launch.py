"""The command line and environment of a vLLM server."""

from pathlib import Path

from producers.rollout.settings import VllmSection
from producers.rollout.vllm_engine.launch import INSIDE, Launch, launch

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


def test_further_arguments_come_last_so_that_they_win() -> None:
    assert launched(arguments=["--dtype", "float16"]).command[-2:] == ("--dtype", "float16")
