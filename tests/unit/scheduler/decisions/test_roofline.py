"""Ratios of training to rollout speed."""

import pytest

from scheduler.decisions.roofline import BANDWIDTH, PEAK, Speeds, attainable, ratios


def test_decoding_is_bound_by_bandwidth_and_training_by_the_peak() -> None:
    device = {PEAK: 1e15, BANDWIDTH: 4e12}

    assert attainable(device)["train"] == 1e15
    assert attainable(device)["rollout"] == 16 * 4e12


def test_a_device_with_unknown_figures_is_as_good_at_both() -> None:
    assert attainable({}) == {"train": 1, "rollout": 1}


def test_compute_heavy_devices_train_and_bandwidth_heavy_ones_roll_out() -> None:
    def speeds(peak: float, bandwidth: float) -> Speeds:
        device = {PEAK: peak, BANDWIDTH: bandwidth}
        return Speeds(attainable(device), {})

    found = ratios({"compute": speeds(2e15, 2e12), "bandwidth": speeds(1e15, 4e12)})
    assert found["compute"] > found["bandwidth"]


def test_measured_speeds_correct_the_model() -> None:
    modelled = {"train": 10.0, "rollout": 1.0}
    found = ratios(
        {
            "slow": Speeds(modelled, {"train": 500.0, "rollout": 100.0}),
            "fast": Speeds(modelled, {"train": 1500.0, "rollout": 100.0}),
            "unmeasured": Speeds(modelled, {}),
        }
    )

    assert found["slow"] == pytest.approx(5)
    assert found["fast"] == pytest.approx(15)
    assert found["unmeasured"] == pytest.approx(10)
