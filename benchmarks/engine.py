"""The torch engine's tokens a second, beside `generate`; the clock engine's time and CPU.

    python -m benchmarks engine [--tokens 192] [--prompt 32] [--repeats 3]
    python -m benchmarks engine --model DIRECTORY [--groups 8x8] [--prompt 45] [--answer 18]

The torch engine and `generate` from `transformers` use one random model with 131k parameters
(hidden 64, 2 layers), float32, one thread. `generate_one_by_one` serves the sequences one after the
other, as a plain loop does; `generate_padded` gets all sequences at once, equally long, which is
its best case. The best repeat counts; all figures include the time to prefill.

The clock engine samples 32 turns at once as Qwen3-8B on an H100 would: `wall_s` is what it took,
`model_s` what the device model's passes add up to. CPU is measured at a thousandth of the time, so
that waiting costs nothing.

With `--model` the torch engine samples groups with equal prompts from a real model, on all cores,
as in a training step. Seconds are CPU time, all cores together: `prefill_s` with one-token answers,
`decode_s` what longer answers add, `sampling_s` only the draws. `bound_s` is what these passes'
matrix products take by themselves, each group's prompt computed once.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.infra.device_model.settings import (
    DeviceModelSection,
    LengthsSection,
    worker_rates,
)
from seamlessflow.producers.rollout.clock_engine.answers import AnswerLengths, Answers
from seamlessflow.producers.rollout.clock_engine.engine import ClockEngine, ClockEngineSettings
from seamlessflow.producers.rollout.engine.contract import Engine, SamplingParams, TokenChunk
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.producers.rollout.torch_engine.packed_layers import PackedLinear
from seamlessflow.producers.rollout.torch_engine.sampling import SamplingBatch, sample
from seamlessflow.schemas.tokens import pack

_SEQUENCES = (1, 8, 32)
_VOCABULARY = 512
_DEADLINE_S = 300.0

Prompts = list[list[int]]


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks engine", description=__doc__)
    parser.add_argument("--tokens", type=int, default=192, help="sampled per sequence")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the shortest prompt")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", help="Hugging Face directory of a real model")
    parser.add_argument("--groups", default="8x8", help="groups x equal prompts in each")
    parser.add_argument("--answer", type=int, default=18, help="tokens of an answer, with --model")
    asked = parser.parse_args(argv)
    if asked.model:
        print(json.dumps({"benchmark": "engine", **group_figures(asked)}))
        return
    torch.set_num_threads(1)
    model = tiny_model()
    sequences: dict[str, dict[str, float]] = {}
    with closing(TorchEngine(model, TorchEngineSettings())) as engine:
        for count in _SEQUENCES:
            sequences[str(count)] = compare(engine, model, count, asked)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    figures = {"parameters": parameters, "sequences": sequences, "clock": clock_figures()}
    print(json.dumps({"benchmark": "engine", **figures}))


def group_figures(asked: argparse.Namespace) -> dict[str, Any]:
    """Return CPU seconds for a step's samples by their parts, from the best repeats."""
    groups, size = (int(number) for number in asked.groups.split("x"))
    sessions = groups * size
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(  # nosec B615 # a local directory
        asked.model, dtype=torch.float32, local_files_only=True
    )
    vocabulary = model.config.get_text_config().vocab_size
    settings = TorchEngineSettings(
        max_length=asked.prompt + asked.answer, max_running=sessions, max_rows=2 * sessions
    )
    seconds: dict[int, list[float]] = {1: [], asked.answer: []}
    with closing(TorchEngine(model, settings)) as engine:
        for seed in range(asked.repeats * len(seconds)):
            tokens = (1, asked.answer)[seed % 2]
            drawn = draw_prompts(groups, asked.prompt, seed, vocabulary)
            prompts = [prompt[: asked.prompt] for prompt in drawn for _ in range(size)]
            began_s = time.process_time()
            serve(engine, prompts, tokens)
            seconds[tokens].append(time.process_time() - began_s)
        reused = engine.health().reused_tokens
    prefill_s = min(seconds[1])
    all_s = min(seconds[asked.answer])
    bound_s = products_s(model, groups * asked.prompt, groups)
    bound_s += (asked.answer - 1) * products_s(model, sessions, sessions)
    figures = {
        "prefill_s": prefill_s,
        "decode_s": all_s - prefill_s,
        "sampling_s": asked.answer * draw_s(sessions, vocabulary),
        "bound_s": bound_s,
        "ratio_to_bound": all_s / bound_s,
    }
    rounded = {name: round(value, 3) for name, value in figures.items()}
    return {"threads": torch.get_num_threads(), **rounded, "reused_tokens": reused}


def products_s(model: PreTrainedModel, rows: int, last: int) -> float:
    """Return CPU seconds for a pass's matrix products: `rows` tokens, `last` with logits."""
    head: object = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    kinds = torch.nn.Linear | PackedLinear
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    inputs = {
        layer: torch.ones(last if layer is head else rows, layer.weight.shape[1])
        for layer in layers
    }

    def products() -> None:
        for layer, states in inputs.items():
            layer(states)

    return cpu_s(products)


def draw_s(rows: int, vocabulary: int) -> float:
    """Return CPU seconds to draw a token for each of `rows` rows."""
    batch = SamplingBatch(
        temperature_B=np.ones(rows, np.float32),
        top_p_B=np.ones(rows),
        top_k_B=np.zeros(rows, np.int64),
        seed_B=np.arange(rows, dtype=np.uint64),
        offset_B=np.zeros(rows, np.int64),
    )
    logits_BV = torch.randn(rows, vocabulary)
    return cpu_s(lambda: sample(logits_BV, batch))


def cpu_s(work: Callable[[], object], repeats: int = 4) -> float:
    """Return the CPU seconds that some work takes on all threads, the least over the repeats."""
    seconds = []
    with torch.inference_mode():
        for _ in range(repeats):
            began_s = time.process_time()
            work()
            seconds.append(time.process_time() - began_s)
    return min(seconds)


def compare(
    engine: TorchEngine, model: PreTrainedModel, count: int, asked: argparse.Namespace
) -> dict[str, float]:
    """Return tokens a second for each way to serve `count` sequences, and the engine's ratios."""
    ways: dict[str, Callable[[Prompts], None]] = {
        "torch_engine": lambda prompts: serve(engine, prompts, asked.tokens),
        "generate_padded": lambda prompts: generate(model, prompts, asked.tokens),
        "generate_one_by_one": lambda prompts: generate(model, prompts[:1], asked.tokens),
    }
    best = dict.fromkeys(ways, 0.0)
    for repeat in range(asked.repeats):
        prompts = draw_prompts(count, asked.prompt, seed=1000 * count + repeat)
        for way, work in ways.items():
            served = 1 if way == "generate_one_by_one" else count
            best[way] = max(best[way], served * asked.tokens / timed(work, prompts))
    rates = {f"{way}_tokens_per_s": round(rate, 1) for way, rate in best.items()}
    ratios = {
        f"ratio_to_{way}": round(best["torch_engine"] / rate, 2)
        for way, rate in best.items()
        if way != "torch_engine"
    }
    return rates | ratios


def clock_figures() -> dict[str, float]:
    """Return a full batch's time against the model's, and CPU by turn and by token."""
    rows, prompt, tokens, batches = 32, 1000, 512, 100
    rates = worker_rates(DeviceModelSection(hardware="H100", model="Qwen3-8B"), 1, rows=rows)
    passes = (
        rates.batch_s(rows) + rates.context_s * rows * (prompt + number + 0.5)
        for number in range(tokens)
    )
    model_s = rows * rates.prompt(prompt) + sum(passes)
    # Equally long, without a prefix in common.
    prompts = [draw_prompts(1, prompt, number)[0] for number in range(rows * batches)]
    with closing(clock_engine(rates)) as engine:
        wall_s = timed(lambda some: serve(engine, some, tokens), prompts[:rows])
    with closing(clock_engine(rates.scaled(1e-3))) as engine:
        began_s = time.process_time()
        for first in range(0, len(prompts), rows):
            serve(engine, prompts[first : first + rows], tokens)
        turn_s = (time.process_time() - began_s) / len(prompts)
    figures = {"model_s": model_s, "wall_s": wall_s}
    cpu = {"cpu_us_a_turn": 1e6 * turn_s, "cpu_us_a_token": 1e6 * turn_s / tokens}
    return {name: round(value, 4) for name, value in (figures | cpu).items()}


def clock_engine(rates: Rates) -> ClockEngine:
    """Return an engine whose answers end at their `max_tokens`."""
    answers = Answers(pack(range(50)), AnswerLengths(LengthsSection()))
    return ClockEngine(ClockEngineSettings(rates=rates), answers)


def serve(engine: Engine, prompts: Prompts, tokens: int) -> None:
    """Serve all sequences with the engine at once."""
    finished = threading.Semaphore(0)

    def on_chunk(chunk: TokenChunk) -> None:
        if chunk.finish_reason is not None:
            finished.release()

    for index, prompt in enumerate(prompts):
        ids = np.array(prompt, "<i4").tobytes()
        engine.submit(f"sequence {index}", ids, b"", SamplingParams(tokens), on_chunk)
    for _ in prompts:
        if not finished.acquire(timeout=_DEADLINE_S):
            raise TimeoutError(f"not finished after {_DEADLINE_S:g} s: {engine.health()}")


def generate(model: Any, prompts: Prompts, tokens: int) -> None:
    """Serve all sequences with one `generate`, padded on the left."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=tokens,
            pad_token_id=0,
        )


def tiny_model() -> PreTrainedModel:
    """Return a model as small as the demo's, with random weights and no end-of-sequence token."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=_VOCABULARY,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return model


def draw_prompts(count: int, length: int, seed: int, vocabulary: int = _VOCABULARY) -> Prompts:
    """Return random prompts of `length` and more tokens, all different."""
    random = np.random.default_rng(seed)
    return [random.integers(0, vocabulary, length + i).tolist() for i in range(count)]


def timed(work: Callable[[Prompts], None], prompts: Prompts) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    work(prompts)
    return time.perf_counter() - start
