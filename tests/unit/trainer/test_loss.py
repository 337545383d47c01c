"""Settings of a loss: names stand for choices, and contradicting choices are refused."""

import pytest
from pydantic import ValidationError

from seamlessflow.trainer.loss import LossSection


@pytest.mark.parametrize(
    ("settings", "surrogate", "correction"),
    [
        ({}, "ppo_clip", "none"),
        ({"name": "ppo_clip"}, "ppo_clip", "none"),
        ({"name": "tis"}, "cispo", "none"),
        ({"name": "icepop"}, "policy_gradient", "icepop"),
        ({"name": "tis", "surrogate": "cispo"}, "cispo", "none"),
        ({"surrogate": "gspo"}, "gspo", "none"),
        ({"correction": "tis"}, "ppo_clip", "tis"),
    ],
)
def test_a_name_stands_for_a_surrogate_and_a_correction(
    settings: dict[str, object], surrogate: str, correction: str
) -> None:
    section = LossSection.model_validate(settings)
    assert (section.chosen_surrogate, section.chosen_correction) == (surrogate, correction)
    assert LossSection.model_validate(section.model_dump()) == section, "as a lineage records it"


@pytest.mark.parametrize(
    ("settings", "variable", "reason"),
    [
        ({"name": "tis", "surrogate": "gspo"}, "surrogate", "name tis stands for surrogate cispo"),
        ({"name": "icepop", "correction": "tis"}, "correction", "stands for correction icepop"),
        (
            {"surrogate": "cloning", "correction": "tis"},
            "correction",
            "cloning, which has no ratio",
        ),
        ({"surrogate": "gspo", "dual_clip": 3}, "dual_clip", "needs surrogate ppo_clip, not gspo"),
        ({"name": "tis", "dual_clip": 3}, "dual_clip", "needs surrogate ppo_clip, not cispo"),
        ({"ratio_level": "turn"}, "ratio_level", "needs surrogate gspo, not ppo_clip"),
        ({"correction_level": "turn"}, "correction_level", "needs correction tis, not none"),
        (
            {"correction": "icepop", "correction_level": "session"},
            "correction_level",
            "needs correction tis, not icepop",
        ),
        ({"dual_clip": 0.9}, "dual_clip", "so it is above 1; 0 sets no bound"),
        ({"surrogate": "cispo", "dual_clip": 0}, "dual_clip", "needs surrogate ppo_clip"),
        ({"gate_positive": 2}, "gate_positive", "needs surrogate sapo, not ppo_clip"),
        ({"surrogate": "gspo", "gate_negative": 2}, "gate_negative", "needs surrogate sapo"),
        ({"divergence": "kl"}, "divergence", "needs surrogate dppo, not ppo_clip"),
        ({"divergence_bound": 0.1}, "divergence_bound", "needs surrogate dppo"),
        ({"floor": 0.5}, "floor", "needs correction icepop, not none"),
        ({"correction": "tis", "floor": 0.5}, "floor", "needs correction icepop, not tis"),
        (
            {"surrogate": "cloning", "masks": {"outlier": {"low": 0.1}}},
            "masks",
            "cloning, which has no ratio",
        ),
        (
            {"surrogate": "pairs_squared", "correction": "icepop"},
            "correction",
            "pairs_squared, which has no ratio",
        ),
        (
            {"surrogate": "pairs_logistic", "masks": {"outlier": {"low": 0.1}}},
            "masks",
            "pairs_logistic, which has no ratio",
        ),
        (
            {"surrogate": "pairs_logistic", "aggregation": "sequence_mean"},
            "aggregation",
            "pairs_logistic is a mean over pairs of sessions: leave it out",
        ),
        ({"kl_weighted": True}, "kl_weighted", "kl is 0: set kl"),
        ({"kl": 0.1, "kl_estimator": "k2", "kl_weighted": True}, "kl_weighted", "needs .* k3"),
        ({"aggregation": "constant"}, "constant_length", "aggregation constant needs it"),
        ({"constant_length": 9}, "constant_length", "needs aggregation constant"),
    ],
)
def test_a_contradiction_is_refused_at_the_variable(
    settings: dict[str, object], variable: str, reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason) as refused:
        LossSection.model_validate(settings)
    assert [error["loc"] for error in refused.value.errors()] == [(variable,)]


@pytest.mark.parametrize(
    ("mask", "bounds"),
    [("geometric_mean", "low or high"), ("outlier", "low or high"), ("off_policy", "most")],
)
def test_a_mask_without_a_bound_is_refused(mask: str, bounds: str) -> None:
    masks = {mask: {"level": "turn"}}
    with pytest.raises(ValidationError, match=f"level has no effect without a bound: set {bounds}"):
        LossSection.model_validate({"masks": masks})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"surrogate": "gspo", "masks": {"outlier": {"low": 0.1}}},
        {"surrogate": "sapo", "gate_positive": 2.0},
        {"surrogate": "dppo", "divergence": "kl"},
        {"name": "icepop", "floor": 0.4},
        {"dual_clip": 0},
    ],
)
def test_a_loss_is_the_same_after_it_was_recorded(settings: dict[str, object]) -> None:
    section = LossSection.model_validate(settings)
    assert LossSection.model_validate(section.model_dump(mode="json")) == section


@pytest.mark.parametrize(
    ("settings", "bound"), [({}, 3.0), ({"dual_clip": 2}, 2.0), ({"dual_clip": 0}, None)]
)
def test_the_dual_bound_is_three_unless_it_is_set(
    settings: dict[str, object], bound: float | None
) -> None:
    assert LossSection.model_validate(settings).dual_bound == bound


@pytest.mark.parametrize(
    ("settings", "unit"),
    [
        ({}, "token"),
        ({"masks": {"outlier": {"low": 0.1, "level": "token"}}}, "token"),
        ({"masks": {"outlier": {"low": 0.1}}}, "session"),
        ({"masks": {"off_policy": {"most": 0.5, "level": "turn"}}}, "turn"),
        ({"surrogate": "gspo"}, "session"),
        ({"surrogate": "gspo", "ratio_level": "turn"}, "turn"),
        ({"correction": "tis", "correction_level": "turn"}, "turn"),
        (
            {
                "surrogate": "gspo",
                "ratio_level": "turn",
                "correction": "tis",
                "correction_level": "session",
            },
            "session",
        ),
    ],
)
def test_a_loss_names_the_unit_that_it_needs_whole(settings: dict[str, object], unit: str) -> None:
    assert LossSection.model_validate(settings).unit == unit
