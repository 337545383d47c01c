"""The memory of a run's own workers, as a rehearsal has them."""

import pytest

from schemas.records import Record
from seamlessflow.config import RunConfig
from seamlessflow.reports.simulated_workers import without_room_of_own
from tests.builders.records import control


@pytest.mark.parametrize(
    ("model", "notice"), [("Qwen3-32B", "has no room on a gang of 2 devices"), ("Qwen3-8B", "")]
)
def test_a_gang_that_cannot_hold_what_it_trains_is_told(model: str, notice: str) -> None:
    config = RunConfig.model_validate(
        {
            "workers": [{"id": "w0", "devices": [0, 1], "tags": ["rollout", "train"]}],
            "device_model": {"model": model, "hardware": "H100"},
        }
    )
    steps: list[Record] = [control.started(["w0"])]

    found = without_room_of_own(config, steps)
    assert notice in found
    assert bool(found) is bool(notice)
