"""Models that the torch engine cannot run, by `config.json` as it is published."""

from typing import Any

import pytest

from seamlessflow.producers.rollout.torch_engine.limits import unsupported

PHI_4_MINI = {"rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}}
GEMMA_3 = {"layer_types": ["sliding_attention", "full_attention"], "rope_scaling": None}
LLAMA = {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (PHI_4_MINI, "has rotary scaling longrope"),
        ({"text_config": PHI_4_MINI}, "has rotary scaling longrope"),
        ({"rope_scaling": {"type": "su"}}, "has rotary scaling su"),
        ({"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}, "dynamic"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "of type linear_attention"),
    ],
)
def test_what_depends_on_more_than_keys_and_values_is_named(
    config: dict[str, Any], reason: str
) -> None:
    assert reason in unsupported(config)


@pytest.mark.parametrize("config", [{}, GEMMA_3, LLAMA, {"text_config": GEMMA_3}])
def test_other_models_may_run(config: dict[str, Any]) -> None:
    assert unsupported(config) == ""
