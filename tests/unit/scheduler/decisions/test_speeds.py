"""Ratios of training to rollout speed."""

import pytest

from seamlessflow.scheduler.decisions.speeds import BANDWIDTH, PEAK, attainable, ratios


def test_decoding_is_bound_by_bandwidth_and_training_by_the_peak() -> None:
    device = {PEAK: 1e15, BANDWIDTH: 4e12}

    assert attainable(device)["train"] == 1e15
    assert attainable(device)["rollout"] == 16 * 4e12


def test_a_device_with_unknown_figures_is_as_good_at_both() -> None:
    assert attainable({}) == {"train": 1, "rollout": 1}


def test_compute_heavy_devices_train_and_bandwidth_heavy_ones_roll_out() -> None:
    devices = {
        "compute": attainable({PEAK: 2e15, BANDWIDTH: 2e12}),
        "bandwidth": attainable({PEAK: 1e15, BANDWIDTH: 4e12}),
    }

    ratio = ratios(devices, {})
    assert ratio["compute"] > ratio["bandwidth"]


def test_measured_speeds_correct_the_model() -> None:
    modelled = {"train": 10.0, "rollout": 1.0}
    ratio = ratios(
        dict.fromkeys(("slow", "fast", "unmeasured"), modelled),
        {"train": {"slow": 500.0, "fast": 1500.0}, "rollout": {"slow": 100.0, "fast": 100.0}},
    )

    assert ratio["slow"] == pytest.approx(5)
    assert ratio["fast"] == pytest.approx(15)
    assert ratio["unmeasured"] == pytest.approx(10)


def test_a_role_that_no_worker_has_shown_yet_is_in_the_unit_of_the_other() -> None:
    modelled = {name: {"train": 10.0, "rollout": 1.0} for name in ("seen", "unseen")}

    assert ratios(modelled, {"train": {}, "rollout": {"seen": 400.0}}) == {"seen": 10, "unseen": 10}
    assert ratios(modelled, {"train": {"seen": 400.0}})["seen"] == 10
