"""Markdown tables for shares, trainings and interruptions. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev

import numpy as np

from benchmarks.exact.encodings import Change
from benchmarks.exact.interruptions import ScoredAnswer
from benchmarks.exact.runs import Run
from benchmarks.exact.shares import AnswerChanges, PromptChanges, Share, by_turn, kinds
from benchmarks.exact.training import StepRow
from benchmarks.exact.variants import VARIANTS
from benchmarks.learning.intervals import Estimate, estimate

_EXAMPLES = 4
"""Examples for each kind of change."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def answers_table(answers: Sequence[AnswerChanges]) -> str:
    """Return the share of answers with other ids, by tools and limit."""
    keys = sorted({(answer.tools, answer.limit) for answer in answers})
    rows = []
    for tools, limit in keys:
        chosen = [a for a in answers if (a.tools, a.limit) == (tools, limit)]
        tokens = sum(answer.tokens for answer in chosen)
        rows.append(
            (
                "yes" if tools else "no",
                limit,
                f"{tokens / len(chosen):.1f}",
                _changed(chosen),
                f"{1000 * sum(len(a.changes) for a in chosen) / tokens:.1f}",
            )
        )
    head = (
        "tools",
        "limit",
        "tokens an answer",
        "answers with other ids",
        "changes / 1,000 tokens",
    )
    return table(head, rows)


def questions_table(answers: Sequence[AnswerChanges], limit: int) -> str:
    """Return the same by kind of question, for answers with at most `limit` tokens."""
    chosen = [answer for answer in answers if answer.limit == limit and not answer.tools]
    names = dict.fromkeys(answer.kind for answer in chosen)
    rows = [(name, _changed([a for a in chosen if a.kind == name])) for name in names]
    return table(("question", f"answers with other ids, limit {limit}"), rows)


def prompts_table(prompts: Sequence[PromptChanges]) -> str:
    """Return the share of prompts with other ids, by tools and turn."""
    rows = []
    for tools in (False, True):
        chosen = [prompt for prompt in prompts if prompt.tools == tools]
        for turn, share in by_turn(chosen).items():
            tokens = fmean(prompt.tokens for prompt in chosen if prompt.turn == turn)
            rows.append(("yes" if tools else "no", turn, f"{tokens:.0f}", share))
    return table(("tools", "turn", "tokens of the prompt", "prompts with other ids"), rows)


def kinds_table(changes: Sequence[Change]) -> str:
    """Return the kinds of changes, with examples."""
    rows = []
    for kind, count in kinds(changes).most_common():
        examples = dict.fromkeys(_shown(change) for change in changes if change.kind == kind)
        short = sorted(examples, key=len)[:_EXAMPLES]
        rows.append((kind, str(Share(count, len(changes))), ", ".join(short)))
    return table(("kind", "changes", "sampled → encoded again"), rows)


def training_table(runs: Mapping[Run, Sequence[StepRow]]) -> str:
    """Return a row for each variant: means over its seeds, with intervals over seeds."""
    rows = []
    for variant in VARIANTS:
        of_variant = [rows for run, rows in runs.items() if run.variant == variant]
        if of_variant:
            every = [row for of_run in of_variant for row in of_run]
            share = Share(sum(row.changed for row in every), sum(row.answers for row in every))
            rows.append(
                (
                    f"`{variant}`",
                    len(of_variant),
                    _over(of_variant, lambda steps: fmean(row.reward for row in first(steps))),
                    _over(of_variant, lambda steps: fmean(row.reward for row in last(steps))),
                    _over(of_variant, lambda steps: _metric(steps, "grad_norm")),
                    f"{fmean(_metric(steps, 'mismatch_mean') for steps in of_variant):.1e}",
                    f"{max(_most(steps) for steps in of_variant):.1e}",
                    share,
                )
            )
    head = (
        *("trained", "seeds", "reward, first quarter", "last quarter", "gradient norm"),
        *("mismatch reported, mean", "largest", "answers with other ids"),
    )
    return table(head, rows)


def gradients_table(rows: Sequence[StepRow]) -> str:
    """Return how far each variant's gradient is from the exact one, in equal steps.

    Steps without a changed answer are counted and left out: their gradients are equal.
    """
    changed = [row for row in rows if row.changed]
    names = dict.fromkeys(name for row in changed for name in row.compared)
    lines = []
    for name in names:
        pairs = [row.compared[name] for row in changed if name in row.compared]
        distances = [pair.distance for pair in pairs]
        steps = f"{len(pairs)} of {sum(name in row.compared for row in rows)}"
        cosine = min(pair.cosine for pair in pairs)
        mean = estimate(distances)
        lines.append((f"`{name}`", steps, mean, f"{max(distances):.3f}", f"{cosine:.4f}"))
    head = (
        *("trained", "steps with a changed answer", "distance, share of the norm"),
        *("largest", "least cosine"),
    )
    return table(head, lines)


def gaps_table(rows: Sequence[StepRow]) -> str:
    """Return what changed answers become under the trainer: log-probs beside the engine's."""
    gaps = [gap for row in rows for gap in row.gaps]
    behind = [gap for row in rows for gap in row.behind]
    lines = [
        (name, len(values), f"{fmean(values):+.3f}", _mean(values), f"{max(map(abs, values)):.2f}")
        for name, values in (("whole answer", gaps), ("token behind the first change", behind))
        if values
    ]
    head = ("other ids", "count", "mean difference, nats", "mean distance", "largest")
    return table(head, lines)


def interruptions_table(cases: Mapping[str, Sequence[ScoredAnswer]]) -> str:
    """Return engine-trainer differences by case, by each token's version and the last one."""
    lines = []
    uninterrupted = cases.get("none", ())
    for name, answers in cases.items():
        old, new = [_distances(answers, version) for version in (0, 1)]
        wrong = _by_last_version(answers)
        same = sum(a.ids == b.ids for a, b in zip(answers, uninterrupted, strict=False))
        lines.append(
            (
                name,
                len(answers),
                f"{len(old):,} + {len(new):,}",
                _tiny(old),
                _tiny(new),
                f"{max(np.max(part, initial=0.0) for part in (old, new)):.1e}",
                _tiny(wrong),
                same if uninterrupted else "",
            )
        )
    head = (
        *("interruption", "answers", "tokens of version 0 + 1", "difference, version 0"),
        *("version 1", "largest", "all by the last version", "same ids as without"),
    )
    return table(head, lines)


def first(rows: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the first quarter of the steps."""
    return rows[: max(len(rows) // 4, 1)]


def last(rows: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the last quarter of the steps."""
    return rows[-max(len(rows) // 4, 1) :]


def _changed(chosen: Sequence[AnswerChanges]) -> Share:
    return Share(sum(bool(each.changes) for each in chosen), len(chosen))


def _shown(change: Change) -> str:
    return f"{_code(change.sampled)} → {_code(change.again)}"


def _code(pieces: Sequence[str]) -> str:
    """Return tokens as Markdown, with a dot between them."""
    # A bar would end a table's cell.
    text = "·".join(pieces).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _over(
    runs: Sequence[Sequence[StepRow]], figure: Callable[[Sequence[StepRow]], float]
) -> Estimate:
    return estimate([figure(steps) for steps in runs])


def _metric(rows: Sequence[StepRow], name: str) -> float:
    return fmean(row.metrics[name] for row in rows if name in row.metrics)


def _most(rows: Sequence[StepRow]) -> float:
    return max(row.metrics.get("mismatch_max", 0.0) for row in rows)


def _mean(values: Sequence[float]) -> str:
    distances = np.abs(values)
    return f"{float(distances.mean()):.3f} ± {_half(distances.tolist()):.3f}"


def _half(values: Sequence[float]) -> float:
    """Return half the 95 % interval's width around a mean over many values, 0 for one."""
    return 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _distances(answers: Sequence[ScoredAnswer], version: int) -> list[float]:
    """Return the differences for the tokens that a version sampled, under that version."""
    return [
        abs(engine - trainer)
        for answer in answers
        for engine, trainer, sampled_by in zip(
            answer.engine, answer.trainer[version], answer.versions, strict=True
        )
        if sampled_by == version
    ]


def _by_last_version(answers: Sequence[ScoredAnswer]) -> list[float]:
    """Return the differences for all tokens under their answer's last version."""
    return [
        abs(engine - trainer)
        for answer in answers
        for engine, trainer in zip(answer.engine, answer.trainer[answer.versions[-1]], strict=True)
    ]


def _tiny(distances: Sequence[float]) -> str:
    return f"{fmean(distances):.1e} ± {_half(distances):.0e}" if distances else ""
