"""TRL's side: `GRPOTrainer` on the same work. Runs in the environment that `scripts/peers` makes.

    python -m benchmarks.peers.trl_side ORDERS

ORDERS is a `Work` as JSON. A line of `steps.jsonl` follows each step. If sessions have several
turns, answers come from a `rollout_func`, which continues the previous turn's ids as TRL's own tool
loop does.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.peers.conversations import Conversations, Rewards
from benchmarks.peers.result import GENERATION, LOGPROBS, UPDATE, StepEnd
from benchmarks.peers.shape import ROWS, WARM_UP, Work, work_of

STEPS_FILE = "steps.jsonl"


def train() -> None:
    """Train, and write each step's end."""
    work = work_of(json.loads(sys.argv[1]))
    torch.set_num_threads(work.threads)
    tasks = {task.questions()[0]: task for task in work.tasks()}
    tokenizer = AutoTokenizer.from_pretrained(work.model)  # nosec B615 # a local directory
    model = AutoModelForCausalLM.from_pretrained(  # nosec B615 # a local directory
        work.model, dtype=torch.float32
    )
    prompts = [[{"role": "user", "content": question}] for question in tasks]
    several = work.shape.turns > 1
    trainer = TimedTrainer(
        model=model,
        args=_settings(work),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        reward_funcs=Rewards(tasks),
        rollout_func=Conversations(tasks, work.shape) if several else None,
    )
    trainer.add_callback(StepsFile(trainer, Path(work.out) / STEPS_FILE))
    trainer.train()


def _settings(work: Work) -> Any:
    """Return what both sides share; the rest is TRL's default, or fastest on a CPU."""
    shape = work.shape
    return GRPOConfig(
        output_dir=str(Path(work.out) / "trl"),
        use_cpu=True,
        bf16=False,
        # TRL's default computes activations again, which makes a step longer.
        gradient_checkpointing=False,
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=shape.sessions // ROWS,
        num_generations=shape.group_size,
        max_completion_length=shape.max_tokens,
        temperature=1.0,
        max_steps=WARM_UP + work.steps,
        learning_rate=work.lr,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        epsilon_high=0.28,
        shuffle_dataset=False,
        seed=work.seed,
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )


class TimedTrainer(GRPOTrainer):  # type: ignore[misc] # this environment has no TRL
    """The trainer with a stopwatch on its phases."""

    def __init__(self, **arguments: Any) -> None:
        self.seconds = dict.fromkeys((GENERATION, LOGPROBS, UPDATE), 0.0)
        self.sampled = 0
        self.prompts = 0
        self.gradient_at_s = 0.0
        super().__init__(**arguments)

    @contextmanager
    def timed(self, phase: str, sign: int = 1) -> Iterator[None]:
        """Add the time inside the block to a phase, or take it away."""
        began = time.perf_counter()
        yield
        self.seconds[phase] += sign * (time.perf_counter() - began)

    def _generate(self, prompts: list[Any]) -> Any:
        with self.timed(GENERATION):
            made = super()._generate(prompts)
        prompt_ids, completion_ids, masks, *_ = made
        self.sampled += sum(map(sum, masks)) if masks else sum(map(len, completion_ids))
        self.prompts += sum(map(len, prompt_ids))
        return made

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            return super()._get_per_token_logps_and_entropies(*arguments, **named)
        with self.timed(LOGPROBS):
            return super()._get_per_token_logps_and_entropies(*arguments, **named)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        with self.timed(UPDATE, sign=-1):  # it lies inside the training step
            return super()._prepare_inputs(generation_batch)

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        """Compute a part of the gradient."""
        with self.timed(UPDATE):
            loss = super().training_step(*arguments, **named)
        self.gradient_at_s = time.perf_counter()
        return loss


class StepsFile(TrainerCallback):
    """A file with a line for each step."""

    def __init__(self, trainer: TimedTrainer, file: Path) -> None:
        self._trainer = trainer
        self._file = file

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Count what came since the gradient: its clipping, and the optimizer."""
        took_s = time.perf_counter() - self._trainer.gradient_at_s
        self._trainer.seconds[UPDATE] += took_s

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Write a step's end, and begin the next step."""
        trainer = self._trainer
        end = StepEnd(
            at_s=time.time(),
            sampled=trainer.sampled,
            trained=trainer.sampled,
            phases=dict(trainer.seconds),
            details={"prompt_tokens": trainer.prompts},
        )
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(end)) + "\n")
        trainer.seconds = dict.fromkeys(trainer.seconds, 0.0)
        trainer.sampled = trainer.prompts = 0


if __name__ == "__main__":
    train()
