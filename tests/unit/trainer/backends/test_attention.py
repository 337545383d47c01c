"""Setting `trainer.attention`: equal results, and refusals of what cannot be computed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import forked_chains, with_advantages
from tests.builders.trainer.models import write_family, write_tiny


def settings(**changes: Any) -> TrainerSection:
    return TrainerSection.model_validate({"device": "cpu", "threads": 1, **changes})


@pytest.mark.parametrize("layout", ["padded", "packed", "tree"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_gradients_of_eager_and_sdpa_are_equal_in_every_layout(
    family: str, layout: Any, tmp_path: Path
) -> None:
    directory = write_family(tmp_path, family)
    chains = forked_chains()
    advantages = [(-1.0) ** number for number in range(len(chains))]
    step = StepInput(pack(with_advantages(chains, advantages), 200, layout), [], 0, 0.05)
    gradients = []
    for attention in ("sdpa", "eager"):
        backend = TorchBackend(directory, settings(layout=layout, attention=attention))
        *_, gradient = backend.gradients(step)
        gradients.append({name: value.clone() for name, value in gradient.items()})
    sdpa, eager = gradients
    assert any(value.abs().max() > 1e-3 for value in sdpa.values())
    for name in sdpa:
        torch.testing.assert_close(eager[name], sdpa[name], atol=1e-5, rtol=1e-5)


def test_eager_attention_is_what_the_model_computes(tmp_path: Path) -> None:
    backend = TorchBackend(write_tiny(tmp_path), settings(attention="eager"))
    assert backend._model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"layout": "tree", "dtype": "bfloat16"},
            "takes no mask of pairs of tokens.*layout packed",
        ),
        ({"layout": "packed"}, "computes in half precision alone: set dtype bfloat16"),
        ({"dtype": "bfloat16", "compute_dtype": "float32"}, "in half precision alone"),
    ],
)
def test_flash_attention_is_refused_with_what_it_cannot_compute(
    changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValidationError, match=text):
        settings(attention="flash_attention_2", **changes)


def test_megatron_has_attention_of_its_own() -> None:
    with pytest.raises(ValidationError, match="attention eager is unproven with backend megatron"):
        settings(backend="megatron", attention="eager")


def test_flash_attention_needs_a_gpu(tmp_path: Path) -> None:
    flash = settings(attention="flash_attention_2", dtype="bfloat16", layout="packed")
    with pytest.raises(ModelUnusable, match="flash_attention_2: it needs a GPU, and the device is"):
        TorchBackend(write_tiny(tmp_path), flash)
