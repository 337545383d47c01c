"""Device of a worker's process: what `auto` in its settings stands for. Pure."""

from collections.abc import Callable


def device_named(setting: str, has_gpu: Callable[[], bool]) -> str:
    """Return the device of a setting; `auto` is a GPU if there is one, else the CPU.

    `has_gpu` is only called for `auto`, since the answer takes a moment.
    """
    if setting != "auto":
        return setting
    return "cuda" if has_gpu() else "cpu"
