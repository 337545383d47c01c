"""Modelled times of a worker, and of a gang whose members wait for the slowest."""

from dataclasses import replace

import pytest

from seamlessflow.infra.device_model.presets import UnknownPreset, hardware_named, model_named
from seamlessflow.infra.device_model.rates import (
    Efficiency,
    GangMember,
    ModelTooLarge,
    Rates,
    gang_step,
    rates_of,
)

PERFECT = Efficiency(
    bandwidth=1, prompt_flops=1, train_flops=1, memory=1, load_bytes=1e9, all_reduce_s=0
)
FAST = Rates(row_s=1, train_s=2, train_context_s=0.5)
LENGTHS = [4.0, 2.0]


def test_a_small_batch_waits_for_the_weights_and_a_large_one_for_operations() -> None:
    rates = rates_of(hardware_named("H100"), model_named("Qwen3-8B"), 1, PERFECT)

    assert rates.batch_s(1) == rates.batch_s(100) == pytest.approx(16.4e9 / 3.35e12)
    # The ridge: 2 x 989e12 / (2 x 3.35e12) rows.
    assert rates.batch_s(1000) == pytest.approx(1000 * 2 * 8.2e9 / 989e12)


def test_a_mixture_of_experts_reads_more_weights_for_more_rows() -> None:
    rates = rates_of(hardware_named("H20"), model_named("Qwen3-30B-A3B"), 1, PERFECT)

    assert rates.batch_s(1) == pytest.approx(2 * 3.3e9 / 4e12)
    assert 2 * rates.batch_s(1) > rates.batch_s(2) > rates.batch_s(1)
    assert rates.batch_s(200) <= 2 * 30.5e9 / 4e12


def test_more_devices_divide_the_work_of_each_pass_and_of_training() -> None:
    single, eight = (
        rates_of(hardware_named("H800"), model_named("Qwen3-8B"), devices, PERFECT)
        for devices in (1, 8)
    )

    for part in ("weights_s", "row_s", "context_s", "prompt_s", "train_s", "load_s"):
        assert getattr(eight, part) == pytest.approx(getattr(single, part) / 8)
    assert eight.leave_s == pytest.approx(16 * 8.2e9 / 8 / PERFECT.host_bytes)
    assert eight.wake_s == pytest.approx(2 * 8.2e9 / 8 / PERFECT.host_bytes)
    assert single.leave_s == pytest.approx(80e9 / PERFECT.host_bytes), "no more than its memory"
    assert eight.kv_tokens > 8 * single.kv_tokens


def test_a_gang_divides_what_training_keeps_and_a_worker_the_rest() -> None:
    alone, ganged = (
        rates_of(hardware_named("H800"), model_named("Qwen3-8B"), 8, PERFECT, gang=gang)
        for gang in (0, 32)
    )

    assert ganged.take_s == ganged.leave_s == pytest.approx(alone.take_s / 4)
    assert ganged.wake_s == alone.wake_s
    assert ganged.train_s == alone.train_s


def test_a_prompt_behind_others_costs_their_attention_too() -> None:
    rates = Rates(row_s=1, prompt_s=2, prompt_context_s=0.5)

    assert rates.prompt(4) == 4 * (2 + 0.5 * 2)
    assert rates.prompt(4) + rates.prompt(6, 4) == rates.prompt(10)


def test_a_model_that_does_not_fit_and_unknown_names_are_refused() -> None:
    with pytest.raises(ModelTooLarge, match=r"Qwen2.5-72B needs 145 GB, 1 H100 have 80 GB"):
        rates_of(hardware_named("H100"), model_named("Qwen2.5-72B"))
    with pytest.raises(UnknownPreset, match="no device 'H1000' is known; known are H20, H100"):
        hardware_named("H1000")
    with pytest.raises(ValueError, match="must take time"):
        Rates()


def test_a_gang_divides_a_step_evenly_among_its_devices() -> None:
    rates = Rates(row_s=1, train_s=2, train_context_s=0.5)

    assert rates.part([4, 2], mine=1, devices=1) == rates.training(4) + rates.training(2)
    assert rates.part([4, 2], mine=2, devices=6) == rates.part([4, 2], mine=1, devices=1) / 3


def test_each_device_gets_an_equal_part_and_all_wait_for_the_slowest() -> None:
    slow = replace(FAST, train_s=20)
    members = {"a": GangMember(FAST, 2), "b": GangMember(FAST, 2), "c": GangMember(slow, 4)}

    step = gang_step(members, 8, LENGTHS, step_s=3)

    assert step.parts_s["a"] == step.parts_s["b"] == 3 + FAST.part(LENGTHS, 2, 8)
    assert step.slowest_s == step.parts_s["c"] == 3 + slow.part(LENGTHS, 4, 8)


def test_a_member_alone_computes_the_part_that_it_has_in_the_whole_gang() -> None:
    members = {"a": GangMember(FAST, 2), "b": GangMember(FAST, 6)}

    whole = gang_step(members, 8, LENGTHS, step_s=1)
    alone = [gang_step({name: member}, 8, LENGTHS, 1) for name, member in members.items()]

    assert max(step.slowest_s for step in alone) == pytest.approx(whole.slowest_s)
