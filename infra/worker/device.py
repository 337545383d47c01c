"""Device of a worker's process: what `auto` in its settings stands for, and the host's memory."""

import os
from collections.abc import Callable


def device_named(setting: str, has_gpu: Callable[[], bool]) -> str:
    """Return the device of a setting; `auto` is a GPU if there is one, else the CPU.

    `has_gpu` is only called for `auto`, since the answer takes a moment.
    """
    if setting != "auto":
        return setting
    return "cuda" if has_gpu() else "cpu"


def free_host_bytes() -> int:
    """Return the host's memory that no program uses, in bytes: what a worker on a CPU has free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
