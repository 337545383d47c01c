"""Settings of the trainer that name something: each name has what it names, and all have a name."""

from typing import get_args

import pytest

from seamlessflow.trainer.backends.losses.corrections import CORRECTIONS
from seamlessflow.trainer.backends.losses.surrogates import SURROGATES
from seamlessflow.trainer.credit import EstimatorName, PairsName
from seamlessflow.trainer.data.advantages import ESTIMATORS
from seamlessflow.trainer.data.aggregations import AGGREGATIONS
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS
from seamlessflow.trainer.data.credit.pairs import PAIR_LOSSES
from seamlessflow.trainer.data.filters import FILTERS
from seamlessflow.trainer.data.pairs import PAIR_RULES
from seamlessflow.trainer.data.reuse import CHOICES
from seamlessflow.trainer.loss import (
    OF_PAIRS,
    PRESETS,
    AggregationName,
    CorrectionName,
    LossName,
    LossSection,
    SurrogateName,
)
from seamlessflow.trainer.mixing.mixers import MIXERS
from seamlessflow.trainer.policy import AdapterSection
from seamlessflow.trainer.settings import FilterName, TrainerSection
from seamlessflow.trainer.stored import ChoiceName, MixerName, ReuseSection


def test_every_name_that_a_setting_accepts_is_registered() -> None:
    assert get_args(LossName) == tuple(PRESETS)
    assert get_args(SurrogateName) == tuple(SURROGATES)
    assert get_args(CorrectionName) == tuple(CORRECTIONS)
    assert get_args(AggregationName) == tuple(AGGREGATIONS)
    # Some compare in the group, and scale over the batch.
    assert get_args(EstimatorName) == tuple(dict.fromkeys((*ESTIMATORS, *BATCH_ESTIMATORS)))
    assert get_args(FilterName) == tuple(FILTERS)
    assert get_args(ChoiceName) == tuple(CHOICES)
    assert get_args(PairsName) == tuple(PAIR_RULES)
    assert tuple(PAIR_LOSSES) == OF_PAIRS
    assert get_args(MixerName) == tuple(MIXERS)


@pytest.mark.parametrize("name", ["grpo", "turn", "distill"])
def test_a_penalty_of_tokens_is_refused_for_an_advantage_that_sees_none(name: str) -> None:
    with pytest.raises(ValueError, match=f"advantage {name} sees none: use one of reinforce_pp"):
        TrainerSection(advantage=name, kl_penalty=0.1, teacher="teacher")


def test_a_sum_of_advantages_without_a_weight_is_refused() -> None:
    none = {"session_weight": 0, "turn_weight": 0}
    with pytest.raises(ValueError, match="is 0 for all tokens"):
        TrainerSection.model_validate({"advantage": "session_and_turn", "returns": none})
    assert TrainerSection.model_validate({"advantage": "turn", "returns": none}).advantage == "turn"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"advantage": "gdpo", "overlong": {"length": 9, "cache": 2}}, "gdpo normalises each by"),
        ({"advantage": "maxrl", "overlong": {"length": 9, "cache": 2}}, "overlong.length lessens"),
        ({"advantage": "maxrl", "rewards": {"a": 1.0, "b": -0.1}}, "rewards.b lessens"),
        ({"reference_every": 5}, "renews what no loss compares with: set loss.kl"),
        (
            {"reference_every": 5, "loss": {"kl": 0.1}, "adapter": {"rank": 4}},
            "an adapter is only a part of it",
        ),
    ],
)
def test_what_cannot_be_as_it_is_meant_is_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TrainerSection.model_validate(settings)


def test_distillation_needs_a_teacher() -> None:
    with pytest.raises(ValueError, match="distill needs teacher"):
        TrainerSection(advantage="distill")


@pytest.mark.parametrize("several", [{"mini_batches": 2}, {"epochs": 2}])
def test_several_updates_need_a_loss_that_sees_the_weights_move(several: dict[str, int]) -> None:
    bare = LossSection(surrogate="policy_gradient")
    with pytest.raises(ValueError, match=r"policy_gradient without a correction.*loss\.correction"):
        TrainerSection.model_validate({"loss": bare, **several})
    assert TrainerSection(loss=bare).updates == 1
    with pytest.raises(ValueError, match=r"reuse and replay train tokens.*reuse\.groups 0"):
        TrainerSection(loss=bare, reuse=ReuseSection(groups=1))
    corrected = LossSection(surrogate="policy_gradient", correction="icepop")
    assert TrainerSection.model_validate({"loss": corrected, **several}).updates == 2


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("advantage distill", {"advantage": "distill", "teacher": "teacher"}),
        ("returns.entropy_scale", {"returns": {"entropy_scale": 0.5}}),
        ("returns.hybrid_scale", {"returns": {"hybrid_scale": 0.1}}),
        ("kl_penalty", {"advantage": "reinforce_pp", "kl_penalty": 0.1}),
    ],
)
def test_imitation_is_refused_beside_what_makes_advantages_alone(
    name: str, settings: dict[str, object]
) -> None:
    cloning = {"loss": {"surrogate": "cloning"}}
    with pytest.raises(ValueError, match=f"{name} makes advantages, and loss.surrogate cloning"):
        TrainerSection.model_validate(cloning | settings)
    critic = {"advantage": "gae", "kl_penalty": 0.1}
    assert TrainerSection.model_validate(cloning | critic).critic_used


@pytest.mark.parametrize("surrogate", OF_PAIRS)
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"epochs": 2}, "which several updates leave: set mini_batches 1 and epochs 1"),
        ({"mini_batches": 2}, "which several updates leave"),
        ({"advantage": "rloo"}, "advantage rloo makes advantages, and"),
        ({"returns": {"entropy_scale": 0.5}}, "returns.entropy_scale makes advantages"),
        ({"returns": {"hybrid_scale": 0.1}}, "returns.hybrid_scale makes advantages"),
        (
            {"pairs": {"opponents": {"most": 3, "weights": [1, 2]}}},
            r"weights needs 3 numbers \(most\), and one above 0",
        ),
        ({"pairs": {"opponents": {"weights": [0, 0]}}}, "weights needs 2 numbers"),
        ({"pairs": {"opponents": {"most": 5}}}, "less than or equal to 4"),
    ],
)
def test_what_means_nothing_beside_pairs_is_refused(
    surrogate: str, settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        TrainerSection.model_validate({"loss": {"surrogate": surrogate}, **settings})


def test_opponents_are_refused_with_an_adapter_and_one_reference_is_not() -> None:
    squared = {"loss": {"surrogate": "pairs_squared"}, "adapter": {"rank": 2}}
    with pytest.raises(ValueError, match=r"opponents are whole models.*reference_share 1"):
        TrainerSection.model_validate(squared)
    alone = TrainerSection.model_validate({**squared, "pairs": {"reference_share": 1}})
    assert (alone.opponents, alone.reference_used) == (0, True)


@pytest.mark.parametrize(
    ("settings", "opponents"),
    [
        ({}, 0),
        ({"loss": {"surrogate": "pairs_logistic"}}, 0),
        ({"loss": {"surrogate": "pairs_squared"}}, 2),
        (
            {"loss": {"surrogate": "pairs_squared"}, "pairs": {"opponents": {"most": 4}}},
            4,
        ),
    ],
)
def test_a_loss_has_opponents_only_if_it_compares_with_some(
    settings: dict[str, object], opponents: int
) -> None:
    assert TrainerSection.model_validate(settings).opponents == opponents


@pytest.mark.parametrize("forgotten", [{"alpha": 16}, {"targets": ("q_proj",)}])
def test_an_adapter_whose_rank_is_forgotten_is_refused(forgotten: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="alpha and targets are of an adapter: set its rank"):
        TrainerSection(adapter=AdapterSection.model_validate(forgotten))
    none = AdapterSection.model_validate({**forgotten, "rank": 0})
    assert not none.used, "a policy may differ from the first in this alone"


@pytest.mark.parametrize(
    ("settings", "compares"),
    [
        ({"advantage": "grpo"}, True),
        ({"advantage": "reinforce_pp"}, False),
        ({"advantage": "grpo", "loss": {"surrogate": "cloning"}}, False),
    ],
)
def test_cloning_compares_no_sessions_whatever_the_advantage(
    settings: dict[str, object], compares: bool
) -> None:
    assert TrainerSection.model_validate(settings).compares_sessions == compares
