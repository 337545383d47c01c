"""Rates of a recorded run, as the section `device_model` has them. Pure.

Of `control`, and of the turns and lengths that belong to it. Workers are taken as alike; what was
not seen (no change of role, for example) keeps its modelled rate.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from seamlessflow.lab.calibration.decoding import decoding_times
from seamlessflow.lab.calibration.steps import MeasuredTimes, step_times, training_line
from seamlessflow.lab.calibration.turns import RecordedTurn, mean_hop_s
from seamlessflow.scheduler.state.accounts.device_time import Window
from seamlessflow.schemas.records import Record, WorkerUsage

_CHANGES = (("rollout", "sleep_s", "train", "take_s"), ("train", "leave_s", "rollout", "wake_s"))
"""The role that a worker leaves, the rate of that, the role that it takes, and the rate of that."""


def measured_rates(
    control: Sequence[Record],
    turns: Sequence[RecordedTurn],
    tokens: Mapping[str, int],
    rows: int,
    window: Window,
) -> dict[str, Any]:
    """Return values of the section.

    `tokens` of the groups, prompts included; `rows` of a full batch. Only what lies in the window
    counts.
    """
    since_ms, until_ms = window
    usage = [
        report
        for report in control
        if isinstance(report, WorkerUsage)
        and since_ms <= report.from_ms
        and report.at_ms <= until_ms
    ]
    times = step_times(control, since_ms + 1)
    held = times.held * fmean(turn.prompt + turn.sampled / 2 for turn in turns) if turns else 0.0
    decoding = decoding_times(usage, turns, rows, mean_hop_s(turns), held)
    rates = {} if decoding is None else decoding.rates()
    section: dict[str, Any] = {}
    line = training_line(times.steps, tokens)
    if line is not None:
        section["step_s"], train_s = line
        section["publish_s"] = fmean(step.publish_s for step in times.steps)
        rates |= {"train_s": train_s, "train_context_s": 0.0}
    return {"rates": rates | _moves(times), **section}


def _moves(times: MeasuredTimes) -> dict[str, float]:
    """Return the times of new weights and of changes of role, as far as there were any."""
    moves = {}
    if times.load_ms:
        moves["load_s"] = fmean(times.load_ms) / 1000
    for role, release, to, acquire in _CHANGES:
        if changed_ms := times.changed_ms[to]:
            released_ms = times.released_ms[role]
            moves[release] = fmean(released_ms) / 1000 if released_ms else 0.0
            moves[acquire] = max(0.0, fmean(changed_ms) / 1000 - moves[release])
    return moves
