"""Work of the agents of a recorded run, as the section `simulation.workload` has it. Pure.

Lengths come from the sessions, times from the turns and from `control`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import log
from statistics import fmean, pstdev
from typing import Any

from seamlessflow.lab.calibration.lengths import measured_lengths
from seamlessflow.lab.calibration.sessions import RecordedSession
from seamlessflow.lab.calibration.turns import RecordedTurn, mean_hop_s
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import group_of_session
from seamlessflow.schemas.records import Record


def measured_workload(
    sessions: Sequence[RecordedSession], turns: Sequence[RecordedTurn], control: Iterable[Record]
) -> dict[str, Any]:
    """Return values of the section, as far as they were seen."""
    return {
        **_sizes(sessions),
        **measured_lengths(
            (session.group, tokens) for session in sessions for tokens in session.sampled
        ),
        **_waits(turns),
        **_ends(turns, control),
        "hop_s": mean_hop_s(turns),
    }


def _sizes(sessions: Sequence[RecordedSession]) -> dict[str, Any]:
    """Return turns of a session, tokens of prompts, and the share of successes."""
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
    """Return the time from a turn to the next one of its session."""
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
    """Return the times from a group's admission to its sessions, and from these to its end."""
    admitted: dict[str, int] = {}
    ready: dict[str, int] = {}
    for record in control:
        match record:
            case r.GroupAdmitted():
                admitted[record.group_id] = record.at_ms
            case r.GroupReady() | r.GroupDropped():
                ready.setdefault(record.group_id, record.at_ms)
    first, last = dict[str, int](), dict[str, int]()
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
