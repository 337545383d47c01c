"""The worth of exact tokens: text encoded again, beside the ids that were sampled.

    python -m benchmarks exact_tokens shares --model DIR [--tools] [--scale 1] [--out DIR]
    python -m benchmarks exact_tokens training --model DIR [--variants NAMES] [--seeds 3]
        [--steps 20] [--limit 16] [--compare-every 4] [--out DIR]
    python -m benchmarks exact_tokens interruptions --model DIR [--samples 2] [--limit 48]
        [--after 16] [--ahead 4] [--out DIR]

`shares` samples answers and sessions, and counts those whose text has other ids. `training` trains
on small sums with each variant (`exact/variants.py`). `interruptions` gives an answer new weights,
or moves it, and compares the engine's log-probs with the trainer's. `scripts/real-model` makes a
directory for --model.

What was made is a file below --out and is not made again; a larger `--scale` continues the files.
Tables go to standard error, pictures and one line of JSON name the rest. `--tables` makes nothing,
and prints tables of what is there.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.exact import answers, report, shares
from benchmarks.exact.interruptions import CASES
from benchmarks.exact.picture import draw_prompts, draw_rewards
from benchmarks.exact.runs import Interruption, Run, interrupt, train
from benchmarks.exact.training import StepRow
from benchmarks.exact.variants import VARIANTS
from benchmarks.learning.sampler import Sampler
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, RendererSettings
from seamlessflow.infra.rendering.tokenizer import Tokenizer

LIMITS = (16, 64, 256)
PARTS = ("shares", "training", "interruptions")


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    asked = _arguments(argv)
    out = (asked.out / asked.model.name).resolve()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if asked.threads:
        torch.set_num_threads(asked.threads)
    measure = {"shares": _shares, "training": _training, "interruptions": _interruptions}
    facts = measure[asked.part](asked, out)
    print(json.dumps({"benchmark": "exact_tokens", "part": asked.part, "out": str(out), **facts}))


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks exact_tokens",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face directory")
    parser.add_argument("--out", type=Path, default=Path(".seamlessflow/exact-tokens"))
    parser.add_argument("--tables", action="store_true", help="make nothing, print what is there")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: its own choice")
    parser.add_argument("--tools", action="store_true", help="shares: questions with tools too")
    parser.add_argument("--scale", type=int, default=1, help="shares: times so many samples")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="training")
    parser.add_argument("--seeds", type=int, default=3, help="training")
    parser.add_argument("--steps", type=int, default=20, help="training: of a run")
    parser.add_argument("--compare-every", type=int, default=4, help="training; 0: never")
    parser.add_argument("--limit", type=int, default=16, help="most tokens of an answer")
    parser.add_argument("--samples", type=int, default=2, help="interruptions: of each question")
    parser.add_argument("--after", type=int, default=16, help="interruptions: tokens before")
    parser.add_argument("--ahead", type=int, default=4, help="interruptions: steps to new weights")
    return parser.parse_args(argv)


def _shares(asked: argparse.Namespace, out: Path) -> dict[str, object]:
    renderer = Renderer.load(asked.model, RendererSettings(CHAT_TEMPLATE))
    tokenizer = Tokenizer.load(asked.model)
    plans = answers.plans(asked.tools, asked.scale)
    if not asked.tables:
        rows, length = answers.ROWS, answers.MAX_LENGTH
        stops = renderer.stop_token_ids
        sampler = Sampler(asked.model, stops, rows, length, answers.KV_BYTES)
        for plan in plans:
            for count in answers.sampled(plan, sampler, renderer, out / "shares"):
                _tell(f"{plan.file}: {count} sessions")
    lines = [line for file in sorted((out / "shares").glob("*")) for line in answers.read(file)]
    single = [line for line in lines if len(line.turns) == 1]
    several = [line for line in lines if len(line.turns) > 1]
    of_answers = list(shares.of_answers(single, LIMITS, renderer, tokenizer))
    of_prompts = list(shares.of_prompts(several, renderer, tokenizer))
    # Each answer once, at its whole length.
    whole = shares.of_answers(single, (), renderer, tokenizer)
    changes = [change for answer in whole for change in answer.changes]
    _tell(report.answers_table(of_answers), report.prompts_table(of_prompts))
    _tell(report.questions_table(of_answers, LIMITS[1]), report.kinds_table(changes))
    picture = out / "prompts.png"
    draw_prompts(of_prompts, out.name, picture)
    return {"answers": len(single), "sessions": len(several), "picture": str(picture)}


def _training(asked: argparse.Namespace, out: Path) -> dict[str, object]:
    runs: dict[Run, Sequence[StepRow]] = {}
    names = asked.variants.split(",")
    if unknown := sorted(set(names) - set(VARIANTS)):
        sys.exit(f"no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    # Seed by seed, so that a sweep that is cut off has equally many runs of each variant.
    for seed in range(asked.seeds):
        for variant in (variant for variant in VARIANTS if variant in names):
            run = Run(variant, seed, asked.steps, asked.limit)
            if not asked.tables or run.exists(out):
                every = asked.compare_every
                runs[run] = train(run, asked.model, out, every, lambda row: _tell(str(row)))
    rows = [row for of_run in runs.values() for row in of_run]
    _tell(report.training_table(runs), report.gradients_table(rows), report.gaps_table(rows))
    picture = out / "training.png"
    draw_rewards(runs, picture)
    return {"runs": len(runs), "picture": str(picture)}


def _interruptions(asked: argparse.Namespace, out: Path) -> dict[str, object]:
    sizes = Interruption(asked.samples, asked.limit, asked.after, asked.ahead)
    cases = {
        case: interrupt(case, sizes, asked.model, out)
        for case in CASES
        if not asked.tables or sizes.file(case, out).exists()
    }
    _tell(report.interruptions_table(cases))
    return {"cases": len(cases)}


def _tell(*texts: str) -> None:
    print(*texts, sep="\n\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
