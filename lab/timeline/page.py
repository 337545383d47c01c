"""A timeline's page: one HTML file that contains its data and loads nothing from elsewhere.

The data are the JSON from `page_data`, deflated, in base64: a long run is some megabytes. The
script in `web/` draws them on a canvas, here and in the console. The page depends only on the
records.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from seamlessflow.infra.printable import printable
from seamlessflow.lab.timeline.bars import (
    COLOURS,
    IDLE,
    LABELS,
    SHARES,
    Bar,
    BarPart,
    bars,
    spent_by_part,
)
from seamlessflow.lab.timeline.facts import Given, Mark, RunFacts
from seamlessflow.scheduler.state.accounts.device_time import TRAINING, together
from seamlessflow.scheduler.state.timeline import Timeline
from seamlessflow.schemas.tokens import shown_step

MOST_BARS = 400_000
"""Most bars on a page; beyond that, short neighbours are joined."""
MOST_POINTS = 20_000
"""Points on the curve that counts groups under way."""
LEAST_PAUSE_MS = 1_000
"""Shortest pause in the run that is marked."""
FILES = files(__package__) / "web"
"""The timeline's content, script and style, for this page and the console's."""


def page(timeline: Timeline, facts: RunFacts, title: str, refresh_s: float = 0) -> str:
    """Return the page; with `refresh_s` it reloads itself after this many seconds."""
    data = page_data(timeline, facts, title) | {"refresh_s": refresh_s}
    parts = {
        "JS": file_text("timeline.js"),
        "CSS": file_text("timeline.css"),
        "CONTENT": file_text("content.html"),
        "TITLE": escape(printable(title).encode(errors="replace").decode()),
        "DATA": packed(data),
    }
    whole = file_text("page.html")
    for place, text in parts.items():
        whole = whole.replace(f"@{place}@", text)
    return whole


def packed(data: Mapping[str, Any]) -> str:
    """Return the page's data as its script unpacks them: deflated JSON in base64."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    shown = printable(text).encode(errors="replace")  # a path may have bytes that are no text
    return b64encode(zlib.compress(shown, 9)).decode()


def file_text(name: str) -> str:
    """Return the text in a file from `web/`."""
    return FILES.joinpath(name).read_text(encoding="utf-8")


def page_data(
    timeline: Timeline, facts: RunFacts, title: str, most: int = MOST_BARS
) -> dict[str, Any]:
    """Return the page's data: times in ms since its `start_ms`, shares in per cent."""
    start_ms = timeline.start_ms
    end_ms = max(timeline.end_ms, timeline.start_ms + 1)
    by_worker = bars(timeline.intervals, (start_ms, end_ms), most)
    mixes: dict[tuple[int, ...], int] = {}
    givens: dict[str, int] = {}
    spent = timeline.device_time()
    by_part = spent_by_part(timeline.intervals, timeline.training_ms)
    workers = [
        {
            "name": name,
            "bars": _bars(by_worker.get(name, []), start_ms, mixes),
            "given": _given(facts.assignments.get(name, []), start_ms, givens),
            "loaded": _deltas(facts.loaded.get(name, []), start_ms),
            "spent_ms": _spent(by_part.get(name, {})),
            "idle": round(spent[name].idle_share, 4) if name in spent else None,
        }
        for name in timeline.workers
    ]
    return {
        "title": title,
        "start_ms": start_ms,
        "length_ms": end_ms - start_ms,
        "training_ms": [at_ms - start_ms for at_ms in timeline.training_ms],
        "legend": f"idle: {IDLE} · {SHARES}",
        "finished": facts.finished,
        "idle": round(together(spent.values()).idle_share, 4),
        "switches": timeline.switches,
        "handed_back": timeline.handed_back,
        "parts": [[LABELS[name], colour] for name, colour in COLOURS.items()],
        "training_part": list(COLOURS).index(TRAINING),
        "mixes": [list(mix) for mix in mixes],
        "givens": [json.loads(text) for text in givens],
        "workers": workers,
        **_lines(facts, start_ms),
        "marks": _marks(timeline, facts),
    }


def _lines(facts: RunFacts, start_ms: int) -> dict[str, Any]:
    """Return the data that belong to no single worker: steps, versions, groups under way."""

    def since(at_ms: int | None) -> int | None:
        return None if at_ms is None else at_ms - start_ms

    thin = max(1, len(facts.under_way) // MOST_POINTS)
    return {
        "steps": [
            [
                *(since(at_ms) for at_ms in (step.ready_ms, step.started_ms, step.ended_ms)),
                *(
                    shown_step(step.step),
                    step.version,
                    step.groups,
                    step.tokens,
                    step.workers,
                    step.policy,
                ),
            ]
            for step in facts.steps.values()
        ],
        "versions": [[since(at_ms), number, name] for at_ms, number, name in facts.versions],
        "under_way": _deltas(facts.under_way[::thin], start_ms),
    }


def _marks(timeline: Timeline, facts: RunFacts) -> list[list[Any]]:
    """Return time and text for single events, with the run's pauses."""
    paused = (
        Mark(start, f"no process of the run lived for {(end - start) / 1000:,.0f} s")
        for start, end in timeline.pauses
        if end - start >= LEAST_PAUSE_MS
    )
    marks = sorted((*facts.marks, *paused), key=lambda mark: mark.at_ms)
    return [[mark.at_ms - timeline.start_ms, mark.text] for mark in marks]


def _bars(row: Sequence[Bar], start_ms: int, mixes: dict[tuple[int, ...], int]) -> list[int]:
    """Return three numbers for each bar: the gap before it, its length, and its mix."""
    flat = []
    at_ms = start_ms
    for bar in row:
        mix = _mix(bar.shares)
        number = mixes.setdefault(mix, len(mixes))
        flat += [bar.start_ms - at_ms, bar.end_ms - bar.start_ms, number]
        at_ms = bar.end_ms
    return flat


def _spent(by_part: Mapping[BarPart, float]) -> list[int]:
    return [round(by_part.get(name, 0.0)) for name in COLOURS]


def _mix(shares: Mapping[str, float]) -> tuple[int, ...]:
    """Return number and rounded per cent for each part that is not 0, from a bar's bottom up."""
    cents = [(number, round(100 * shares.get(name, 0.0))) for number, name in enumerate(COLOURS)]
    return tuple(value for pair in cents if pair[1] for value in pair)


def _given(assignments: Sequence[Given], start_ms: int, givens: dict[str, int]) -> list[int]:
    """Return two numbers for each: the time since the last one, and its content's number."""
    flat = []
    before_ms = start_ms
    for assignment in assignments:
        figures = {
            name: float(f"{value:.4g}") for name, value in sorted(assignment.figures.items())
        }
        text = json.dumps([assignment.role, assignment.reason, figures, assignment.policy])
        flat += [assignment.at_ms - before_ms, givens.setdefault(text, len(givens))]
        before_ms = assignment.at_ms
    return flat


def _deltas(pairs: Sequence[tuple[int, int]], start_ms: int) -> list[int]:
    """Return two numbers for each pair: the time since the last one, and the value."""
    flat = []
    before_ms = start_ms
    for at_ms, value in pairs:
        flat += [at_ms - before_ms, value]
        before_ms = at_ms
    return flat
