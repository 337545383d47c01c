"""Log-probs of the torch engine against the trainer's, of the same weights, by element type."""

from contextlib import closing
from dataclasses import replace

import numpy as np

from benchmarks.gpu.part import Asked, Figures, meets
from benchmarks.gpu.steps import VOCABULARY, some_chains, step, write_model
from benchmarks.gpu.turn import Turn
from seamlessflow.producers.rollout.engine.contract import Engine, SamplingParams
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.schemas.tokens import pack
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, Tokens
from seamlessflow.trainer.settings import TrainerSection

_PROMPT = 64
FIGURES = ("mismatch_mean", "mismatch_max", "mismatch_kl")


def run(asked: Asked) -> Figures:
    """Return the trainer's figures of the mismatch for float32 and bfloat16."""
    model = write_model(asked.directory / "model", asked.small)
    sessions, tokens = (4, 16) if asked.small else (16, 256)
    figures: dict[str, object] = {}
    for dtype in ("float32", "bfloat16"):
        settings = TorchEngineSettings(device=asked.device, dtype=dtype, max_length=1024)
        with closing(TorchEngine.from_directory(model, settings)) as engine:
            sampled = [_sampled(engine, number, tokens) for number in range(sessions)]
            tolerance = engine.logprob_tolerance
        backend = TorchBackend(model, TrainerSection(device=asked.device, dtype=dtype))
        backend.load(None, 0)
        backend.acquire()
        metrics = backend.train(step(sampled, 4096, learning_rate=1e-9))
        mismatch = {name: float(f"{metrics[name]:.3g}") for name in FIGURES}
        figures[dtype] = mismatch
        meets(mismatch["mismatch_mean"] < tolerance, f"{dtype}: above {tolerance:g}", figures)
    return figures


def _sampled(engine: Engine, number: int, tokens: int) -> Chain:
    """Return a session that the engine has sampled."""
    prompt = np.random.default_rng(number).integers(0, VOCABULARY, _PROMPT, np.int32)
    sampling = SamplingParams(tokens, seed=number)
    chunks = Turn(engine, f"r{number}", pack(prompt.tolist()), sampling).ended().chunks
    ids = b"".join(chunk.token_ids for chunk in chunks)
    logprobs = b"".join(chunk.logprobs for chunk in chunks)
    (like,) = some_chains(1, _PROMPT, 1)
    all_ids = np.concatenate([prompt, np.frombuffer(ids, np.int32)])
    said = np.concatenate([np.zeros(_PROMPT, np.float32), np.frombuffer(logprobs, np.float32)])
    trained = np.arange(len(all_ids)) >= _PROMPT
    zeros = np.zeros(len(all_ids), np.int32)
    ones = np.ones(len(all_ids), np.float32)
    made = Tokens(all_ids, trained, said, ones, zeros, zeros, zeros, np.where(trained, ones, 0))
    return replace(like, session_id=f"g-0.{number}.0", tokens=made)
