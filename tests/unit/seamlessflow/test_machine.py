"""The memory of a host."""

from pathlib import Path

from seamlessflow.machine import available_bytes, host_bytes, this_machine


def test_the_limit_of_a_container_counts_where_it_is_less(tmp_path: Path) -> None:
    whole = host_bytes(())
    limits = tmp_path / "memory.max", tmp_path / "older"
    assert host_bytes(limits) == whole > 1 << 20
    limits[0].write_text("max\n")
    limits[1].write_text("1048576\n")
    assert host_bytes(limits) == 1 << 20
    limits[1].write_text("9223372036854771712\n")
    assert host_bytes(limits) == whole


def test_a_machine_without_a_gpu_has_no_memory_of_one() -> None:
    here = this_machine()
    assert here.device_bytes is None or here.gpus
    assert here.host_bytes


def test_what_new_processes_may_take_is_known_or_not(tmp_path: Path) -> None:
    statistics = tmp_path / "meminfo"
    assert available_bytes(statistics) is None
    statistics.write_text("MemTotal:  8 kB\nMemFree:  1 kB\nMemAvailable:  2 kB\n")
    assert available_bytes(statistics) == 2048
