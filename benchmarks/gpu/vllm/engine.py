"""vLLM as a worker's engine: tokens a second against the bare server, new weights, sleep."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import numpy as np

from benchmarks.gpu.part import Asked, Figures, free_bytes, meets, timed
from benchmarks.gpu.steps import VOCABULARY, write_model
from benchmarks.gpu.turn import DEADLINE_S, Turn
from benchmarks.gpu.vllm.settings import server_settings
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.vllm_engine.engine import VllmEngine
from seamlessflow.schemas.tokens import pack

_PROMPT = 64
_MIB = 2**20


def run(asked: Asked) -> Figures:
    """Return tokens a second, each move's seconds, and what sleep frees."""
    settings = server_settings(asked)
    model = write_model(asked.directory / "model", asked.small)
    make_tokenizer(model)
    shutil.copytree(model, asked.directory / "next")
    turns = 8 if asked.small else 64
    log = asked.directory / "vllm.log"
    with closing(VllmEngine(settings, turns, model, 0, log)) as engine:
        return _figures(engine, asked, turns)


def _figures(engine: VllmEngine, asked: Asked, turns: int) -> Figures:
    tokens = 64 if asked.small else 512
    _sample(engine, turns, 16)  # what is compiled first is not measured
    speed = turns * tokens / timed(lambda: _sample(engine, turns, tokens), asked.device)
    bare = turns * tokens / timed(lambda: _bare(engine, turns, tokens), asked.device)
    figures: dict[str, object] = {
        "tokens_a_second": round(speed),
        "bare_tokens_a_second": round(bare),
        "ratio": round(speed / bare, 2),
    }
    engine.pause("keep")
    load = timed(lambda: engine.load_weights(asked.directory / "next", 1), asked.device)
    engine.resume()
    engine.pause("abort")
    before = free_bytes(asked.device)
    sleeps = timed(engine.sleep, asked.device)
    freed = (free_bytes(asked.device) - before) // _MIB
    wakes = timed(engine.wake, asked.device)
    engine.resume()
    figures |= {
        "load_s": round(load, 3),
        "sleep_s": round(sleeps, 3),
        "sleep_frees_mib": freed,
        "wake_s": round(wakes, 3),
        "versions": _sample(engine, 1, 8),
    }
    meets(figures["versions"] == [1], "tokens have another version", figures)
    meets(freed > 0 or not asked.on_gpu, "sleep frees nothing", figures)
    return figures


def _sample(engine: VllmEngine, turns: int, tokens: int) -> list[int]:
    """Sample turns at once, to their last token; return the versions that sampled them."""
    asked = [
        Turn(
            engine,
            f"{time.monotonic_ns()}-{number}",
            pack(_prompt(number)),
            SamplingParams(tokens),
        )
        for number in range(turns)
    ]
    return sorted({version for turn in asked for version in turn.ended().versions})


def _bare(engine: VllmEngine, turns: int, tokens: int) -> None:
    """Sample the same from the server itself, without a stream."""
    assert engine.server is not None

    def ask(number: int) -> None:
        body = {
            "model": "policy",
            "prompt": _prompt(number),
            "max_tokens": tokens,
            "ignore_eos": True,
            "logprobs": 0,
        }
        url = f"{engine.server.url}/v1/completions" if engine.server else ""
        httpx.post(url, json=body, timeout=DEADLINE_S, trust_env=False).raise_for_status()

    with ThreadPoolExecutor(turns) as threads:
        list(threads.map(ask, range(turns)))


def _prompt(number: int) -> list[int]:
    random = np.random.default_rng([number, time.monotonic_ns()])
    return [int(token) for token in random.integers(0, VOCABULARY, _PROMPT)]
