"""The torch engine's log-probs against the trainer's, with the same weights, by element type."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import numpy.typing as npt

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
    """Return the trainer's mismatch figures for float32 and bfloat16."""
    model = write_model(asked.directory / "model", asked.small)
    sessions, tokens = (4, 16) if asked.small else (16, 256)
    figures: dict[str, object] = {}
    for dtype in ("float32", "bfloat16"):
        settings = TorchEngineSettings(device=asked.device, dtype=dtype, max_length=1024)
        with closing(TorchEngine.from_directory(model, settings)) as engine:
            turns = [_turn(engine, number, tokens) for number in range(sessions)]
            sampled = [_session(number, turn) for number, turn in enumerate(turns)]
            tolerance = engine.logprob_tolerance
        rate = round(sessions * tokens / _seconds(turns))
        backend = TorchBackend(model, TrainerSection(device=asked.device, dtype=dtype))
        backend.load(None, 0)
        backend.acquire()
        metrics = backend.train(step(sampled, 4096, learning_rate=1e-9))
        mismatch = {name: float(f"{metrics[name]:.3g}") for name in FIGURES}
        figures[dtype] = {**mismatch, "sampled_a_second": rate}
        meets(mismatch["mismatch_mean"] < tolerance, f"{dtype}: above {tolerance:g}", figures)
    return figures


def _turn(engine: Engine, number: int, tokens: int) -> Turn:
    sampling = SamplingParams(tokens, seed=number)
    return Turn(engine, f"r{number}", pack(_prompt(number).tolist()), sampling)


def _seconds(turns: Sequence[Turn]) -> float:
    """Return the time from the turns' first token to their last one."""
    return max(turn.times[-1] for turn in turns) - min(turn.times[0] for turn in turns)


def _prompt(number: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng(number).integers(0, VOCABULARY, _PROMPT, np.int32)


def _session(number: int, turn: Turn) -> Chain:
    """Return a turn's session, once the engine has sampled all of it."""
    chunks = turn.ended().chunks
    ids = b"".join(chunk.token_ids for chunk in chunks)
    logprobs = b"".join(chunk.logprobs for chunk in chunks)
    (like,) = some_chains(1, _PROMPT, 1)
    all_ids = np.concatenate([_prompt(number), np.frombuffer(ids, np.int32)])
    said = np.concatenate([np.zeros(_PROMPT, np.float32), np.frombuffer(logprobs, np.float32)])
    trained = np.arange(len(all_ids)) >= _PROMPT
    zeros = np.zeros(len(all_ids), np.int32)
    ones = np.ones(len(all_ids), np.float32)
    made = Tokens(all_ids, trained, said, ones, zeros, zeros, zeros, np.where(trained, ones, 0))
    return replace(like, session_id=f"g-0.{number}.0", tokens=made)
