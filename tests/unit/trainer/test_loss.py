"""Settings of a loss: names stand for choices, and contradicting choices are refused."""

import pytest
from pydantic import ValidationError

from trainer.loss import LossSection


@pytest.mark.parametrize(
    ("given", "surrogate", "correction"),
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
    given: dict[str, object], surrogate: str, correction: str
) -> None:
    found = LossSection.model_validate(given)
    assert (found.chosen_surrogate, found.chosen_correction) == (surrogate, correction)
    assert LossSection.model_validate(found.model_dump()) == found, "as a lineage records it"


@pytest.mark.parametrize(
    ("given", "variable", "reason"),
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
        ({"aggregation": "constant"}, "constant_length", "aggregation constant needs it"),
        ({"constant_length": 9}, "constant_length", "needs aggregation constant"),
    ],
)
def test_a_contradiction_is_refused_at_the_variable(
    given: dict[str, object], variable: str, reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason) as refused:
        LossSection.model_validate(given)
    assert [error["loc"] for error in refused.value.errors()] == [(variable,)]


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ({}, "token"),
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
def test_a_loss_names_the_unit_that_it_needs_whole(given: dict[str, object], unit: str) -> None:
    assert LossSection.model_validate(given).unit == unit
