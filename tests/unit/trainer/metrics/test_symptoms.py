"""Symptoms of a run: what stands out in its last steps, and what helps."""

import re
from typing import Any, get_origin

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.trainer.metrics.symptoms import SYMPTOMS, WINDOW, Symptom, symptoms

WELL = {
    "groups": 8.0,
    "sessions": 64.0,
    "tokens_trained": 900.0,
    "tokens_masked": 10.0,
    "begun_tokens/p50": 10.0,
    "begun_tokens/p90": 20.0,
    "begun_tokens/p99": 40.0,
    "matched/render": 0.02,
    "sessions_ended": 8.0,
    "turns_ended": 16.0,
    "filtered/zero_variance": 0.1,
    "equal_share": 0.1,
    "divided_share": 0.0,
    "largest_group_share": 0.2,
    "largest_task_share": 0.2,
    "tasks": 8.0,
    "clip_fraction": 0.01,
    "staleness_mean": 0.8,
    "mismatch_mean": 0.001,
    "effective_sample_size": 0.95,
    "ratio_p99": 1.3,
    "entropy": 1.0,
}


def test_a_run_that_is_well_has_no_symptom() -> None:
    assert symptoms([WELL] * 30) == []
    assert symptoms([]) == []


def test_sessions_without_a_reward_are_a_share_of_all_that_ended() -> None:
    lost = {"samples_failed": 36.0, "samples_unrewarded": 10.0}
    texts = symptoms([{**WELL, **lost}])
    assert texts[0].startswith("36% of the sessions failed")
    assert texts[1].startswith("10% of the sessions ended without a reward")


@pytest.mark.parametrize(
    ("ill", "text", "lever"),
    [
        ({"samples_failed": 16.0}, "20% of the sessions failed", "pacing.max_attempts"),
        ({"samples_unrewarded": 16.0}, "20% of the sessions ended without a", "trainer.rewards"),
        ({"ended_at/time": 0.1, "ended_at/turns": 0.1}, "20% of the sessions ended", "turn_limit"),
        ({"begun_tokens/p90": 60.0}, "6.0 times as long", "pacing.redundancy"),
        ({"begun_tokens/p99": 150.0}, "15.0 times as long as the median", "turn_limit"),
        ({"matched/render": 0.25}, "25% of the turns continue", "replay match"),
        ({"masked/prompt_mismatch": 100.0}, "10% of the sampled tokens", "policy.renderer"),
        ({"divided_share": 0.5}, "50% of the sessions have several chains", "replay match"),
        ({"equal_share": 0.75}, "75% of the sessions have the tokens", "temperature"),
        ({"filtered/zero_variance": 0.6}, "60% of the groups have equal", "run.group_size"),
        ({"explored_equal": 9.0, "explored_mixed": 1.0}, "90% of the explored", "sampler.samples"),
        ({"dropped/filtered": 8.0}, "50% of the groups were dropped", "trainer.filters"),
        ({"tokens_masked": 900.0}, "50% of the sampled tokens", "max_staleness"),
        ({"largest_group_share": 0.5}, "3.6 times its part", "sequence_mean"),
        ({"masked/foreign": 100.0}, "10% of the sampled tokens are of another", "train_foreign"),
        ({"foreign_share": 0.5}, "50% of the trained tokens are of sessions", "train_foreign"),
        ({"ratio_p99": 2.5}, "at least 2.5 times as likely", "run.lag"),
        ({"largest_task_share": 0.5}, "task of a batch has 4.0 times", "pacing.tasks"),
        ({"staleness_mean": 3.0}, "3.0 optimizer steps old", "run.lag"),
        ({"mismatch_mean": 0.03}, "differ by 0.030 nats", "trainer.dtype"),
        ({"effective_sample_size": 0.25}, "75% of the trained tokens are lost", "run.lag"),
        ({"clip_fraction": 0.3}, "30% of the trained tokens", "optimizer.lr"),
    ],
)
def test_a_symptom_is_told_with_its_figure_and_its_levers(
    ill: dict[str, float], text: str, lever: str
) -> None:
    (symptom,) = symptoms([WELL | ill] * 3)
    assert text in symptom
    assert lever in symptom


@pytest.mark.parametrize("reason", ["unselected", "unpaired"])
def test_tokens_of_sessions_that_are_not_chosen_are_no_symptom(reason: str) -> None:
    chosen = {"tokens_masked": 2700.0, f"masked/{reason}": 2690.0}
    assert symptoms([WELL | chosen] * 3) == []
    (symptom,) = symptoms([WELL | chosen | {"tokens_masked": 3590.0}] * 3)
    assert "50% of the sampled tokens are not trained" in symptom


def test_an_entropy_that_falls_is_told_once_there_are_steps_to_compare() -> None:
    falling = [WELL | {"entropy": 1 - place / 20} for place in range(20)]
    (symptom,) = symptoms(falling)
    assert "the entropy fell by 83%" in symptom
    assert "trainer.loss.entropy" in symptom
    assert symptoms(falling[:7]) == []
    assert symptoms(falling[::-1]) == []
    assert symptoms([WELL | {"entropy": 0.0}] * 20) == []


def test_the_last_steps_count() -> None:
    ill = WELL | {"equal_share": 1.0}
    assert symptoms([ill] * 30 + [WELL] * WINDOW) == []
    assert len(symptoms([WELL] * 30 + [ill] * WINDOW)) == 1


def test_a_share_that_a_step_does_not_have_is_0() -> None:
    without = {name: value for name, value in WELL.items() if name != "filtered/zero_variance"}
    ill = WELL | {"filtered/zero_variance": 0.8}
    assert symptoms([ill, without]) == []
    assert len(symptoms([ill, ill, without])) == 1


def test_ends_at_limits_are_a_share_over_the_steps_before_which_sessions_ended() -> None:
    of_ended = ("begun", "match", "sessions_ended", "turns_ended")
    none_ended = {name: value for name, value in WELL.items() if not name.startswith(of_ended)}
    at_limit = WELL | {"ended_at/max_tokens": 0.5}
    (symptom,) = symptoms([at_limit, *[none_ended] * 9])
    assert "50% of the sessions ended at a limit" in symptom
    assert "the agent's own max_tokens" in symptom
    assert len(symptoms([at_limit, *[WELL] * 5])) == 0, "there sessions ended, at no limit"
    (symptom,) = symptoms([WELL | {"matched/render": 0.5}, *[none_ended] * 9])
    assert "50% of the turns" in symptom
    assert symptoms([none_ended] * 9) == []


def test_each_session_and_turn_counts_once_whatever_its_step() -> None:
    few = WELL | {"sessions_ended": 2.0, "turns_ended": 4.0}
    many = WELL | {"sessions_ended": 18.0, "turns_ended": 36.0}
    (symptom,) = symptoms([few, many | {"ended_at/max_tokens": 0.5}])
    assert "45% of the sessions ended at a limit" in symptom
    assert symptoms([few | {"ended_at/max_tokens": 0.5}, many]) == []
    (symptom,) = symptoms([few, many | {"matched/render": 0.5}])
    assert "45% of the turns" in symptom


def test_the_part_of_a_group_is_that_of_groups_which_are_trained() -> None:
    half = {"filtered/untrainable": 0.45, "filtered/zero_variance": 0.3}
    assert symptoms([WELL | half | {"largest_group_share": 0.6}]) == []


def test_a_task_of_one_group_is_told_as_that_group_alone() -> None:
    (symptom,) = symptoms([WELL | {"largest_group_share": 0.5, "largest_task_share": 0.5}] * 3)
    assert "the largest group of a batch" in symptom


def test_modelled_steps_tell_nothing() -> None:
    assert symptoms([WELL | {"equal_share": 1.0, "modelled_s": 1.0}] * 3) == []


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.text[:24])
def test_its_levers_are_settings_of_a_run(symptom: Symptom) -> None:
    named = re.findall(r"[a-z_]+(?:\.[a-z_]+)+", symptom.levers)
    assert named
    for path in named:
        section: Any = RunConfig
        for name in path.split("."):
            if get_origin(section) is not dict:
                assert name in section.model_fields, f"{path} is no setting"
                section = section.model_fields[name].annotation
