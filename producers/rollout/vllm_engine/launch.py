"""A vLLM server's command line and environment. Pure.

vLLM pins other versions of many libraries than this process has, so it runs in its own Python
environment. It listens on the loopback interface and downloads nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.producers.rollout.engine.contract import MOST_TOP_LOGPROBS
from seamlessflow.producers.rollout.settings import VllmSection

INSIDE = Path(__file__).parent / "inside_vllm"
EXTENSION = "seamlessflow_worker.Extension"
TRANSFER = '{"backend": "seamlessflow"}'
"""The weight transfer engine that the extension registers."""
ENABLE_LORA = "--enable-lora"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Largest ranks that a server can be started for."""
LARGEST_RANK = _RANKS[-1]
MODULE = "vllm.entrypoints.openai.api_server"
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
_KEEP_ALIVE_S = 3600
"""Lifetime of an idle connection in the server.

It is so long that the client always closes the connection first. A call over a connection that the
server just closed would fail.
"""

_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables for this process's Python, which would mislead the server's Python."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start, with its whole environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)


def launch(
    settings: VllmSection, capacity: int, model: Path, port: int, environment: Mapping[str, str]
) -> Launch:
    """Return how to start a server for the Hugging Face model in directory `model`.

    `environment` is this process's own.
    """
    kept = {
        name: text
        for name, text in environment.items()
        if name not in _NOT_INHERITED and not name.startswith(ENV_PREFIX)  # passwords among them
    }
    variables = {
        # Else it loads only the adapters that it started with.
        **({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"} if ENABLE_LORA in settings.arguments else {}),
        "VLLM_SERVER_DEV_MODE": "1",  # else there is no /pause, /update_weights or /sleep
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(_KEEP_ALIVE_S),
        "VLLM_HOST_IP": HOST,
        "PYTHONPATH": str(INSIDE),
    }
    return Launch(
        (str(settings.python), "-m", MODULE, *_arguments(settings, capacity, model, port)),
        {
            **kept,
            **_OFFLINE,
            **variables,
            **(_few_threads(settings.threads) if settings.threads else {}),
        },
    )


def most_rank(rank: int) -> int:
    """Return the largest rank that a server for adapters of this rank can load."""
    return next((allowed for allowed in _RANKS if allowed >= rank), rank)


def for_adapters(settings: VllmSection, rank: int) -> VllmSection:
    """Return settings for a server that can load adapters of this rank."""
    # First, so that the configuration's arguments win.
    arguments = (ENABLE_LORA, "--max-lora-rank", str(most_rank(rank)), *settings.arguments)
    return settings.model_copy(update={"arguments": arguments})


def _arguments(settings: VllmSection, capacity: int, model: Path, port: int) -> list[str]:
    tensor_parallel = settings.tensor_parallel or 1
    # Without a thread to spare, one process is best; several devices need several.
    one_process = settings.threads is not None and tensor_parallel == 1
    named = {
        "--model": model,
        "--served-model-name": "policy",
        "--dtype": settings.dtype,
        # For each replica.
        "--max-num-seqs": math.ceil(capacity / settings.replicas),
        "--tensor-parallel-size": tensor_parallel if tensor_parallel > 1 else None,
        "--data-parallel-size": settings.replicas if settings.replicas > 1 else None,
        "--max-model-len": settings.max_length,
        "--kv-cache-memory-bytes": settings.kv_bytes,
        # Log-probs at the request's temperature. Under top-p and top-k they are renormalised over
        # the tokens kept, which no trainer can compute: `VllmEngines.whole_vocabulary`.
        "--logprobs-mode": "processed_logprobs",
        "--max-logprobs": MOST_TOP_LOGPROBS + 1,  # the sampled token counts among them
        "--generation-config": "vllm",
        "--worker-extension-cls": EXTENSION,
        "--weight-transfer-config": TRANSFER,
    }
    words = [word for name, value in named.items() if value is not None for word in (name, value)]
    return [
        *map(str, words),
        "--enable-scale-out",  # else /inference/v1/generate answers 403
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
        *(["--enable-sleep-mode"] if settings.gpu else []),
        *(["--distributed-executor-backend", "uni"] if one_process else []),
        *settings.arguments,
        # Last, so that no argument or file of theirs can open the control routes to others.
        *("--host", HOST, "--port", str(port)),
    ]


def _few_threads(number: int) -> dict[str, str]:
    """Return the variables that let several servers share a machine's cores.

    By default each server binds itself to the first cores, so all use the same ones. It also
    samples in another process than the one that schedules ("mp"). The two processes busy-wait for
    each other. On two cores no answer then leaves the server before all are sampled. If the last
    variable is "0", one process does both ("uni").
    """
    return {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(number),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
