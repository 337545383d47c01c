"""Work of a recorded run's agents, as the section `simulation.workload` has it. Pure.

Lengths come from the sessions, times from the turns and from `control`. Turn lengths follow a
log-normal distribution, cut off at the longest turn. A group shares a part of their variance: the
intraclass correlation of the logarithms (one-way ANOVA).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import erf, exp, log, sqrt
from statistics import fmean, pstdev
from typing import Any

from seamlessflow.lab.calibration.recorded_run import RecordedSession, RecordedTurn, mean_hop_s
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import group_of_session
from seamlessflow.schemas.records import Record

_ROUNDS = 30


def measured_workload(
    sessions: Sequence[RecordedSession], turns: Sequence[RecordedTurn], control: Iterable[Record]
) -> dict[str, Any]:
    """Return values for the section, as far as the run shows them."""
    return {
        **_sizes(sessions),
        **measured_lengths(
            (session.group, tokens) for session in sessions for tokens in session.sampled
        ),
        **_waits(turns),
        **_ends(turns, control),
        "hop_s": mean_hop_s(turns),
    }


def measured_lengths(turns: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the values for pairs (group, a turn's tokens); none without turns."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for group, tokens in turns:
        groups[group].append(log(max(1, tokens)))
    logarithms = [logarithm for values in groups.values() for logarithm in values]
    if not logarithms:
        return {}
    spread = pstdev(logarithms)
    most = exp(max(logarithms))
    mean = fmean(exp(logarithm) for logarithm in logarithms)
    return {
        "turn_tokens": _uncut_mean(mean, spread, most),
        "spread": spread,
        "most_tokens": round(most),
        "prompt_effect": _shared_part(groups),
    }


def _shared_part(groups: Mapping[str, Sequence[float]]) -> float:
    """Return the share of the variance that is between the groups, 0 to 1."""
    several = [group for group in groups.values() if len(group) > 1]
    count = sum(len(group) for group in several)
    if len(several) < 2:
        return 0.0
    whole = sum(sum(group) for group in several) / count
    between = sum(len(group) * (fmean(group) - whole) ** 2 for group in several) / (
        len(several) - 1
    )
    within = sum((value - fmean(group)) ** 2 for group in several for value in group) / (
        count - len(several)
    )
    size = (count - sum(len(group) ** 2 for group in several) / count) / (len(several) - 1)
    total = between + (size - 1) * within
    return min(1.0, max(0.0, (between - within) / total)) if total > 0 else 0.0


def _sizes(sessions: Sequence[RecordedSession]) -> dict[str, Any]:
    """Return a session's turns and prompt tokens, and the share of successes."""
    counts = [len(session.sampled) for session in sessions if session.sampled]
    if not counts:
        return {}
    further = sum(counts) - len(counts)
    later = sum(session.later for session in sessions)
    return {
        "turns": fmean(counts),
        "turns_spread": pstdev(log(count) for count in counts),
        "prompt_tokens": max(1, round(fmean(session.first for session in sessions))),
        "tool_tokens": round(later / further) if further else 0,
        "success": min(1.0, max(0.0, fmean(session.reward for session in sessions))),
    }


def _waits(turns: Sequence[RecordedTurn]) -> dict[str, float]:
    """Return the time from a turn to the next one in its session."""
    played: defaultdict[str, list[RecordedTurn]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: turn.started_ms):
        played[turn.session].append(turn)
    waits_s = [
        max(1, later.started_ms - before.ended_ms) / 1000
        for session in played.values()
        for before, later in pairwise(session)
    ]
    if not waits_s:
        return {}
    return {"tool_s": fmean(waits_s), "tool_spread": pstdev(log(wait_s) for wait_s in waits_s)}


def _ends(turns: Sequence[RecordedTurn], control: Iterable[Record]) -> dict[str, float]:
    """Return a group's mean times before its first turns and after its last turn, in seconds.

    The first is from its admission to each session's first turn. The second is from its last turn
    until it is ready or dropped.
    """
    admitted: dict[str, int] = {}
    ready: dict[str, int] = {}
    for record in control:
        match record:
            case r.GroupAdmitted():
                admitted[record.group_id] = record.at_ms
            case r.GroupReady() | r.GroupDropped():
                ready.setdefault(record.group_id, record.at_ms)
    first = dict[str, int]()
    last = dict[str, int]()
    for turn in turns:
        first[turn.session] = min(turn.started_ms, first.get(turn.session, turn.started_ms))
        group = group_of_session(turn.session)
        last[group] = max(turn.ended_ms, last.get(group, 0))
    starts = [
        at_ms - admitted[group]
        for session, at_ms in first.items()
        if (group := group_of_session(session)) in admitted
    ]
    ends = [at_ms - last[group] for group, at_ms in ready.items() if group in last]
    return {
        **({"start_s": max(0.0, fmean(starts)) / 1000} if starts else {}),
        **({"end_s": max(0.0, fmean(ends)) / 1000} if ends else {}),
    }


def _uncut_mean(mean: float, spread: float, most: float) -> float:
    """Return the mean before a cut: draws cut off at `most` have this `mean`."""
    if spread == 0 or mean >= most:
        return mean
    uncut = mean
    for _ in range(_ROUNDS):
        uncut *= mean / _cut_mean(uncut, spread, most)
    return uncut


def _cut_mean(mean: float, spread: float, most: float) -> float:
    """Return the mean of a log-normal distribution whose draws are cut off at `most`."""
    middle = log(mean) - spread**2 / 2
    to_cut = (log(most) - middle) / spread
    return mean * _normal(to_cut - spread) + most * (1 - _normal(to_cut))


def _normal(value: float) -> float:
    return (1 + erf(value / sqrt(2))) / 2
