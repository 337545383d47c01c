"""A host's GPU memory, as NVIDIA's driver reports it, and its own; parts that programs take.

Imports no torch.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_NVML = "libnvidia-ml.so.1"
_OTHER_DRIVERS = (Path("/dev/kfd"), Path("/dev/dxg"))
"""Device files of the drivers for AMD and for Windows under WSL, whose GPUs are not counted."""
_MEMORY = Path("/proc/meminfo")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""A container's memory limit, in cgroups version 2 and version 1."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


@dataclass(frozen=True, slots=True)
class Capacity:
    """Memory and GPUs of a host."""

    device_bytes: float | None
    """The smallest GPU's memory; None if it is unknown, or if there is no GPU."""
    host_bytes: float | None
    """The host's memory, as far as this program may use it; None if it is unknown."""
    gpus: int | None
    """NVIDIA GPUs; None if it cannot be known without torch."""


def this_machine() -> Capacity:
    """Return this host's memory and GPUs."""
    try:
        library = ctypes.CDLL(_NVML)
    except OSError:
        gpus = None if any(path.exists() for path in _OTHER_DRIVERS) else 0
        return Capacity(None, host_bytes(), gpus)
    with _started(library) as started:
        count = ctypes.c_uint()
        if not started or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return Capacity(None, host_bytes(), None)
        return Capacity(_device_bytes(library, count.value), host_bytes(), count.value)


def host_bytes(limits: tuple[Path, ...] = _LIMITS) -> float:
    """Return the host's memory, or this program's cgroup limit if that is less."""
    size = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in limits:
        if path.is_file() and (text := path.read_text(encoding="utf-8").strip()).isdecimal():
            size = min(size, float(text))
    return size


def available_bytes(statistics: Path = _MEMORY) -> float | None:
    """Return the host memory that new processes may take now; None if it is unknown."""
    try:
        lines = statistics.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 1024.0 * kilobytes


def _device_bytes(library: ctypes.CDLL, count: int) -> float | None:
    """Return the smallest memory among `count` GPUs, or None if it is unknown."""
    sizes = []
    for number in range(count):
        handle = ctypes.c_void_p()
        memory = _Memory()
        if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
            return None
        # Fails for a GPU that is divided into instances.
        if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            return None
        sizes.append(float(memory.total))
    return min(sizes, default=None)


@contextmanager
def _started(library: ctypes.CDLL) -> Iterator[bool]:
    """Begin the use of the driver's library and end it; True if it could be begun."""
    started = not library.nvmlInit_v2()
    try:
        yield started
    finally:
        if started:
            library.nvmlShutdown()


MEBIBYTE = 1 << 20
CONTEXT = 512 * MEBIBYTE
"""Memory that CUDA itself keeps on a device for each process."""
LIBRARIES = 512 * MEBIBYTE
"""Memory that a process with torch and transformers takes before it has a model."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One thing that takes memory."""

    name: str
    bytes: float


MemoryParts = tuple[MemoryPart, ...]


def total(parts: MemoryParts) -> float:
    """Return the sum of parts, in bytes."""
    return sum(part.bytes for part in parts)
