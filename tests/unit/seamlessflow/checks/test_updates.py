"""The mode of weight updates, against the lag that it needs."""

import pytest

from seamlessflow.checks.updates import update_faults
from seamlessflow.config_file import as_written, parse


def faults(mode: str, lag: int) -> list[str]:
    config = parse({"rollout": {"update": {"mode": mode}}, "run": {"lag": lag}})
    return [fault.line(as_written) for fault in update_faults(config)]


@pytest.mark.parametrize("mode", ["rolling", "idle"])
def test_a_mode_that_needs_lag_does_not_start_without_it(mode: str) -> None:
    [line] = faults(mode, 0)
    assert line.startswith(f"rollout.update.mode: {mode} has no effect with run.lag 0")
    assert faults(mode, 1) == []


def test_all_workers_load_at_once_with_any_lag() -> None:
    assert faults("together", 0) == faults("together", 1) == []
