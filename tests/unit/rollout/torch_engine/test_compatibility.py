"""Models that the torch engine would get wrong are refused when it is built."""

from typing import Any

import pytest
from torch import nn

from seamlessflow.producers.rollout.engine.errors import ModelUnsupported
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.models import TOKEN_BYTES, config, model, random_model

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
LONG = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "rope_theta": 1e4,
}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        (
            "qwen2",
            {"layer_types": ["full_attention", "chunked_attention"]},
            r"chunked.*rollout\.engine",
        ),
        (
            "qwen2",
            {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": None},
            "names no sliding_window",
        ),
        ("qwen2", {"rope_parameters": DYNAMIC}, "dynamic"),
        ("phi3", {"rope_parameters": LONG, "pad_token_id": 0}, "longrope"),
        (
            "gemma3_text",
            {"rope_parameters": {"sliding_attention": DYNAMIC, "full_attention": PLAIN}},
            "dynamic",
        ),
    ],
)
def test_what_needs_more_than_keys_and_values_is_refused(
    kind: str, changes: dict[str, Any], reason: str
) -> None:
    refused = random_model(config(kind, **changes))
    with pytest.raises(ModelUnsupported, match=reason):
        TorchEngine(refused, TorchEngineSettings())


def test_a_model_whose_cached_forward_differs_is_refused() -> None:
    def misplace(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**kwargs, "position_ids": None}

    source = model()
    source.register_forward_pre_hook(misplace, with_kwargs=True)
    with pytest.raises(ModelUnsupported, match="differ"):
        TorchEngine(source, TorchEngineSettings())


def test_kv_memory_holds_at_least_one_turn_of_full_length() -> None:
    source = model()
    row_bytes = TOKEN_BYTES * 512
    TorchEngine(source, TorchEngineSettings(kv_bytes=row_bytes)).close()
    with pytest.raises(ModelUnsupported, match=str(row_bytes)):
        TorchEngine(source, TorchEngineSettings(kv_bytes=row_bytes - 1))
