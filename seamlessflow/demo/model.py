"""The demo's model: a Qwen3 with 132,000 parameters, which learns on a CPU in minutes.

Random weights would never earn a reward to learn from, so a supervised warm-up on a noisy
demonstrator follows. The demonstrator always answers in the right form (a tool call, then an
answer). It gives the right digit on purpose only one time in five, else a random one. So the policy
begins at a reward of about 0.1, and learns the rest from rewards only.

Tensor letters: B episodes, T tokens, D the model's width.
"""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from seamlessflow.demo.configuration import MAX_CONTEXT, RENDERER
from seamlessflow.demo.task import (
    DIGITS,
    LOOKUP,
    LookupTask,
    answer_text,
    call_text,
    make_tasks,
    question,
    tool_message,
)
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.tokens import unpack

WIDTH = 64
HEAD_DIM = 16

INITIALIZER_RANGE = 0.1
"""At the usual 0.02 a model this narrow does not learn to copy in a short, noisy warm-up."""

STEPS = 150
EPISODES_PER_STEP = 96
"""With a third as many, some seeds give a policy that hardly copies, and a long plateau."""
LEARNING_RATE = 3e-3
MAX_GRADIENT_NORM = 1.0
RIGHT_ON_PURPOSE = 0.2
"""A higher share begins nearer to the solution: at 0.4 the first rewards are about 0.3."""

NOT_TRAINED = -100
"""Target that `cross_entropy` ignores."""

OnDemoStep = Callable[[int, int, float], None]
"""Called after each step with its number, the step count and the loss."""

TextParts = list[tuple[bytes, bool]]
"""An episode's parts: token ids, each with True if the model learns them."""

Batches = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
"""Returns ids and targets, both [B, T], for as many episodes as it is asked for."""


def make_model(directory: Path, seed: int, head_dim: int = HEAD_DIM) -> None:
    """Write a Hugging Face directory: weights (safetensors), configuration, tokenizer.

    The same seed gives the same weights; the global random state is left unchanged.
    """
    make_tokenizer(directory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(_config(Tokenizer.load(directory), head_dim))
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
        do_sample=True,
    )
    model.save_pretrained(directory)


def warm_up(directory: Path, seed: int, on_step: OnDemoStep, steps: int = STEPS) -> None:
    """Train the model in `directory` in place; deterministic for one seed on one machine."""
    demonstrator = Demonstrator(Renderer.load(directory, RENDERER), seed)
    imitate(directory, demonstrator.batch, on_step, steps)


def imitate(
    directory: Path,
    batches: Batches,
    on_step: OnDemoStep,
    steps: int,
    episodes: int = EPISODES_PER_STEP,
) -> None:
    """Train the model in `directory` in place; `batches` gives the `episodes` for each step."""
    model = Qwen3ForCausalLM.from_pretrained(  # nosec B615 # a local directory
        directory, local_files_only=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for step in range(1, steps + 1):
        ids_BT, targets_BT = batches(episodes)
        loss = _loss(model, ids_BT, targets_BT[:, 1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        on_step(step, steps, loss.item())
    model.save_pretrained(directory)


class Demonstrator:
    """A player for training tasks that is wrong in most episodes."""

    def __init__(self, renderer: Renderer, seed: int) -> None:
        self._draw = random.Random(f"demonstrator {seed}")  # nosec B311 # repeatable draws
        self._tasks = make_tasks(STEPS * EPISODES_PER_STEP, seed, "train")
        self._renderer = renderer
        # Ten keys and codes: each text is tokenized once.
        self._prompt = cache(self._render_prompt)
        self._answer = cache(self._encode_answer)

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and targets, both [B, T]; a target is the id itself or `NOT_TRAINED`."""
        episodes = [self.episode(self._draw.choice(self._tasks)) for _ in range(size)]
        ids, targets = zip(*(flat(parts) for parts in episodes), strict=True)
        return torch.tensor(ids), torch.tensor(targets)

    def episode(self, task: LookupTask) -> TextParts:
        """Return prompt, call, tool's message and answer.

        Their lengths are equal in all episodes, because a digit is always one token.
        """
        key = self._digit(task["key"])
        prompt = self._prompt(task["key"])
        call = self._answer(call_text(key))
        result = self._renderer.bridge(prompt, call, [tool_message(task, key)], [LOOKUP])
        answer = self._answer(answer_text(self._digit(task["table"][key])))
        return [(prompt, False), (call, True), (result or b"", False), (answer, True)]

    def _digit(self, right: int) -> int:
        return right if self._draw.random() < RIGHT_ON_PURPOSE else self._draw.choice(DIGITS)

    def _render_prompt(self, key: int) -> bytes:
        task = LookupTask(id="", split="train", key=key, table=[])
        return self._renderer.render([question(task)], [LOOKUP])

    def _encode_answer(self, text: str) -> bytes:
        return self._renderer.encode(f"{text}<|im_end|>")


def flat(parts: TextParts) -> tuple[list[int], list[int]]:
    """Return an episode's ids and targets, both [T]."""
    ids: list[int] = []
    targets: list[int] = []
    for run, learned in parts:
        tokens = unpack(run)
        ids += tokens
        targets += tokens if learned else [NOT_TRAINED] * len(tokens)
    return ids, targets


def _config(tokenizer: Tokenizer, head_dim: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=tokenizer.vocabulary_size,
        hidden_size=WIDTH,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=WIDTH // head_dim,
        num_key_value_heads=WIDTH // head_dim // 2,
        head_dim=head_dim,
        max_position_embeddings=MAX_CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        initializer_range=INITIALIZER_RANGE,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.token_id("<|endoftext|>"),
        dtype="float32",
    )


def _loss(model: Qwen3ForCausalLM, ids_BT: torch.Tensor, next_BT: torch.Tensor) -> torch.Tensor:
    """Return the mean over the learned tokens; logits are computed for these only."""
    learned_BT = next_BT != NOT_TRAINED
    hidden_BTD = model.model(input_ids=ids_BT).last_hidden_state[:, :-1]
    return cross_entropy(model.lm_head(hidden_BTD[learned_BT]), next_BT[learned_BT])
