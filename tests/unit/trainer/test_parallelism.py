"""Division by Megatron-core: the settings refuse what it is not proven with."""

from typing import Any

import pytest

from seamlessflow.trainer.settings import TrainerSection


@pytest.mark.parametrize("name", ["pipeline_parallel", "context_parallel", "expert_parallel"])
def test_other_kinds_of_parallelism_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is unproven"):
        TrainerSection.model_validate({"megatron": {name: 2}})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ranks": 3, "megatron": {"tensor_parallel": 2}}, "ranks 3 must be a multiple"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing is unproven"),
    ],
)
def test_what_is_unproven_is_refused_with_this_back_end_alone(
    settings: dict[str, Any], reason: str
) -> None:
    TrainerSection.model_validate({**settings, "backend": "fsdp2"})
    with pytest.raises(ValueError, match=reason):
        TrainerSection.model_validate({**settings, "backend": "megatron"})
