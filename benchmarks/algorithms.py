"""Held-out reward for the trainer's algorithms on the game Trail, with seeds and intervals.

    python -m benchmarks algorithms [--comparison advantages|losses|distillation|kl|samplers]
        [--methods grpo,turn,gae] [--seeds 5] [--steps 80] [--out DIR] [--quick]

Sessions are sampled in this process (`learning/loop.py`); dataloader, estimators, losses and back
end are the trainer's. Each method gets the same sessions a step, and the same model and tasks for
one seed. Metric and interval: `learning/intervals.py`. The first method is the baseline.

A finished (method, seed) is a file in DIR/curves and is not made again, so that a sweep that was
cut off goes on. DIR also gets pictures that compare the methods. Progress and a table go to
standard error. `--quick` is a smoke run: two methods, one seed, three steps.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.learning.curves import Curve, curve
from benchmarks.learning.intervals import MethodFigures, table
from benchmarks.learning.loop import Point
from benchmarks.learning.methods import BY_TOKENS, COMPARISONS, METHODS
from benchmarks.learning.picture import draw, draw_groups
from benchmarks.learning.tokens import TokenFigures, token_table

_QUICK_STEPS = 3


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    asked = _arguments(argv)
    methods = asked.methods.split(",") if asked.methods else list(COMPARISONS[asked.comparison])
    if unknown := sorted(set(methods) - METHODS.keys()):
        sys.exit(f"no method {', '.join(unknown)}; there are {', '.join(METHODS)}")
    steps, seeds = asked.steps, asked.seeds
    if asked.quick:
        methods, steps, seeds = methods[:2], _QUICK_STEPS, 1
    out = asked.out.resolve()
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    curves: list[Curve] = []
    # Seed by seed, so that a sweep that is cut off has equally many curves for each method.
    for seed in range(seeds):
        for method in methods:
            curves.append(curve(method, seed, steps, out, _progress))
    figures = table(curves, methods[0])
    by_tokens = asked.comparison in BY_TOKENS
    shown = _by_tokens(token_table(curves, methods[0])) if by_tokens else _printed(figures)
    print(shown, file=sys.stderr)
    picture = out / f"{asked.comparison}.png"
    title = f"Trail, {asked.comparison}"
    draw(curves, title, picture, by_tokens)
    if by_tokens:
        draw_groups(curves, title, picture.with_stem(f"{picture.stem}-groups"))
    rows = {
        result.method: {
            "reward": str(result.reward),
            "seeds": result.seeds,
            "took_s": result.took_s,
        }
        for result in figures
    }
    print(json.dumps({"benchmark": "algorithms", "picture": str(picture), "methods": rows}))


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks algorithms", description=__doc__)
    parser.add_argument("--comparison", choices=list(COMPARISONS), default="advantages")
    parser.add_argument("--methods", default="", help="some of all methods, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--out", type=Path, default=Path(".seamlessflow/algorithms"))
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args(argv)


def _progress(name: str, point: Point) -> None:
    line = f"{name}: step {point.step}, {point.tokens:,} tokens, held-out reward {point.reward:.3f}"
    print(line, file=sys.stderr, flush=True)


def _printed(figures: Sequence[MethodFigures]) -> str:
    """Return a Markdown table."""
    lines = [
        "| method | seeds | held-out reward, last quarter | difference to the first | tokens | s |",
        "|---|---|---|---|---|---|",
    ]
    for result in figures:
        difference = "" if result.difference is None else str(result.difference)
        lines.append(
            f"| `{result.method}` | {result.seeds} | {result.reward} | {difference} "
            f"| {result.tokens:,.0f} | {result.took_s:.0f} |"
        )
    return "\n".join(lines)


def _by_tokens(figures: Sequence[TokenFigures]) -> str:
    """Return a Markdown table."""
    lines = [
        "| method | seeds | tokens to 0.5 | times fewer | reward at equal tokens | difference "
        "| equal groups |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in figures:
        half = "not reached" if row.to_half is None else f"{row.to_half:,.0f}"
        gain, difference = (
            "" if each is None else str(each) for each in (row.gain, row.difference)
        )
        lines.append(
            f"| `{row.method}` | {row.seeds} | {half} | {gain} | {row.reward} | {difference} "
            f"| {row.equal_share:.0%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
