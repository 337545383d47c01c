"""Settings of modelled devices, and the rates that follow from them."""

from typing import Any

import pytest
from pydantic import ValidationError

from seamlessflow.infra.device_model.settings import DeviceModelSection, worker_rates


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"hardware": "H1000"}, "no device 'H1000' is known; known are H20, H100"),
        ({"model": "none"}, "no model 'none' is known"),
        ({"rates": {"speed": 1}}, "no rate is named speed"),
        ({"rates": {"load_s": -1}}, r"load_s \(got -1\) must be at least 0"),
        ({"rates": {"load_s": float("nan")}}, "a finite number"),
        ({"publish_s": float("inf")}, "a finite number"),
        ({"rates": {"weights_s": 0, "row_s": 0}}, "a decode pass must take time"),
    ],
)
def test_what_no_device_can_be_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        DeviceModelSection(**wrong)


def test_a_measured_rate_replaces_the_modelled_one() -> None:
    section = DeviceModelSection(hardware="H20", model="Qwen3-8B", rates={"load_s": 7})

    measured, modelled = (
        worker_rates(section, 1),
        worker_rates(DeviceModelSection(hardware="H20"), 1),
    )

    assert measured.load_s == 7
    assert measured.weights_s == modelled.weights_s


def test_a_worker_may_have_other_devices() -> None:
    section = DeviceModelSection(hardware="H20")

    assert worker_rates(section, 1, hardware="H100").row_s < worker_rates(section, 1).row_s


def test_a_scale_changes_times_alone() -> None:
    rates = worker_rates(DeviceModelSection(), 2, rows=9)

    scaled = rates.scaled(0.1)

    assert scaled.batch_s(4) == pytest.approx(rates.batch_s(4) / 10)
    assert scaled.prompt(100, 50) == pytest.approx(rates.prompt(100, 50) / 10)
    assert (scaled.rows, scaled.kv_tokens, scaled.active_share) == (9, rates.kv_tokens, 1)
