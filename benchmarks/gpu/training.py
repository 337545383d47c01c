"""Twenty updates of a model with the shape of Qwen3-0.6B, bfloat16 over float32 master weights."""

import time

from safetensors.torch import load_file

from benchmarks.gpu.part import Asked, Figures, meets, wait_for
from benchmarks.gpu.steps import some_chains, step, write_model
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.settings import TrainerSection

STEPS = 20
_CLONING = {"surrogate": "cloning"}


def run(asked: Asked) -> Figures:
    """Return losses, tokens a second, floating-point operations a second and the memory's peak."""
    model = write_model(asked.directory / "model", asked.small)
    chosen = {"device": asked.device, "compute_dtype": "bfloat16", "loss": _CLONING}
    backend = TorchBackend(model, TrainerSection.model_validate(chosen))
    backend.load(None, 0)
    backend.acquire()
    sessions, prompt, answer = (4, 32, 16) if asked.small else (16, 512, 128)
    update = step(some_chains(sessions, prompt, answer), 4096, "packed", 1e-4)
    losses, seconds = [], []
    for _ in range(STEPS):
        began = time.perf_counter()
        losses.append(backend.train(update)["loss"])
        wait_for(asked.device)
        seconds.append(time.perf_counter() - began)
    tokens = sum(batch.ids_BT.size for batch in update.micro_batches)
    parameters = sum(tensor.numel() for tensor in load_file(model / "model.safetensors").values())
    best = min(seconds)
    figures: dict[str, object] = {
        "parameters": parameters,
        "tokens_a_step": tokens,
        "tokens_a_second": round(tokens / best),
        # Six operations a parameter and token; attention comes on top.
        "tflops": round(6 * parameters * tokens / best / 1e12, 1),
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
        **_memory(asked),
    }
    meets(losses[-1] < losses[0], "the loss did not fall", figures)
    return figures


def _memory(asked: Asked) -> dict[str, int]:
    if not asked.on_gpu:
        return {}
    import torch

    return {"peak_mib": torch.cuda.max_memory_allocated(asked.device) // 2**20}
