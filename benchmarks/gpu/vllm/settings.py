"""Settings for the vLLM server that the parts in this folder measure."""

import os
import shutil
from pathlib import Path

from benchmarks.gpu.part import Asked, Lacks
from seamlessflow.producers.rollout.settings import VllmSection

MAX_LENGTH = 2048
"""Tokens in a prompt and its completion."""
_MIB = 2**20


def server_settings(asked: Asked) -> VllmSection:
    """Return the settings for a device. Raises `Lacks` without a Python that may have vLLM."""
    default = VllmSection()
    python = os.environ.get("SEAMLESSFLOW_ROLLOUT__VLLM__PYTHON", str(default.python))
    if shutil.which(python) is None:
        raise Lacks(f"vLLM: there is no {python}")
    return VllmSection(
        python=Path(python),
        gpu=asked.on_gpu,
        dtype="bfloat16" if asked.on_gpu else "float32",
        kv_bytes=None if asked.on_gpu else 64 * _MIB,
        threads=None if asked.on_gpu else 1,
        max_length=MAX_LENGTH,
        arguments=("--enforce-eager",) if asked.small else (),
    )
