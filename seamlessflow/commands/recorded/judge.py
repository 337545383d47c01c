"""The command `seamlessflow judge`: it judges recorded sessions again, and compares."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from seamlessflow.commands.options import AsJson, Groups, Out, SessionNames, Since, Tasks, Until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seamlessflow.recorded.judging.comparison import JudgeBounds, JudgeComparison, JudgedAnew

JudgeName = Annotated[
    str, typer.Option("--judge", help="Judge: FILE.py:function or module:function.")
]
RewardName = Annotated[
    str,
    typer.Option(
        "--name", help="Name for its reward; a recorded reward with this name is replaced."
    ),
]
To = Annotated[
    Path | None,
    typer.Option(
        help="File for the new rewards, JSON lines for `seamlessflow replay merge --rewards`."
    ),
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Show what would change, and check it against the bounds.")
]
MostSigns = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Largest share of advantages that may change their sign."),
]
MostLost = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Largest share of groups that may lose their signal."),
]
MostUnrewarded = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Largest share of sessions that may stay without a reward."),
]


def judge(
    judge: JudgeName,
    sessions: SessionNames = None,
    out: Out = None,
    name: RewardName = "reward",
    to: To = None,
    compare: Compare = False,
    most_signs: MostSigns = None,
    most_lost: MostLost = None,
    most_unrewarded: MostUnrewarded = None,
    groups: Groups = None,
    tasks: Tasks = None,
    since: Since = None,
    until: Until = None,
    timeout_s: Annotated[float, typer.Option(min=0.001, help="Seconds that a try may take.")] = 60,
    concurrency: Annotated[int, typer.Option(min=1, help="Most tries at the same time.")] = 8,
    retries: Annotated[int, typer.Option(min=0, help="Further tries after a failure.")] = 2,
    wait_s: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until an outage is over.")
    ] = 600,
    as_json: AsJson = False,
) -> None:
    """Judge recorded sessions anew. The log stays as it is.

    It judges training sessions that an agent finished. With --compare, the status is 78 if a bound
    is exceeded.
    """
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.processes.stopping import stoppable
    from seamlessflow.recorded.judging.anew import NewJudge, judge_anew
    from seamlessflow.recorded.judging.comparison import JudgeBounds
    from seamlessflow.recorded.judging.settings import JudgeSection, RewardsSection
    from seamlessflow.recorded.select.options import selection
    from seamlessflow.terminal import reading_bar

    section = JudgeSection(
        callable=_importable(judge), timeout_s=timeout_s, concurrency=concurrency, retries=retries
    )
    new = NewJudge(name, section, wait_s, RewardsSection().tasks_mb)
    chosen = selection(sessions or (), groups or (), tasks or (), (), since, until, None)
    skipped = Skipped()
    with stoppable() as stop, kafka_to_inspect(out) as kafka, reading_bar() as show:
        judged = list(judge_anew(kafka, chosen, new, skipped, show, lambda: stop.asked))
    if to is not None:
        _write(to, name, judged)
    bounds = JudgeBounds(most_signs, most_lost, most_unrewarded)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)
    _report(judged, bounds if compare else None, as_json)


def _report(judged: "Sequence[JudgedAnew]", bounds: "JudgeBounds | None", as_json: bool) -> None:
    """Print what was judged, with `bounds` also what would change. Raises `typer.Exit`."""
    from seamlessflow.infra.errors import ExitStatus
    from seamlessflow.recorded.judging.comparison import compared

    comparison = None if bounds is None else compared(judged)
    exceeded = [] if bounds is None or comparison is None else list(bounds.exceeded(comparison))
    if as_json:
        content = {} if comparison is None else {**asdict(comparison), "exceeded": exceeded}
        typer.echo(orjson.dumps({"judged": len(judged), **content}).decode())
    else:
        _show(judged, comparison, exceeded)
    if exceeded:
        raise typer.Exit(ExitStatus.LASTING)


def _importable(judge: str) -> str:
    """Return a judge as module:function; `judge` may name a file instead of a module."""
    file, _, function = judge.rpartition(":")
    if not file.endswith(".py"):
        return judge
    path = Path(file)
    sys.path.append(str(path.parent.resolve()))
    return f"{path.stem}:{function}"


def _write(to: Path, name: str, judged: "Sequence[JudgedAnew]") -> None:
    lines = [
        orjson.dumps({"session_id": session.session_id, "name": name, "value": session.value})
        for session in judged
        if session.value is not None
    ]
    part = to.with_name(f"{to.name}.part")
    part.write_bytes(b"".join(line + b"\n" for line in lines))
    part.replace(to)


def _show(
    judged: "Sequence[JudgedAnew]",
    comparison: "JudgeComparison | None",
    exceeded: "Sequence[str]",
) -> None:
    lacking = [session for session in judged if session.value is None]
    typer.echo(f"judged {len(judged):,} sessions, {len(lacking):,} of them without a reward")
    for session in lacking[:5]:
        typer.echo(f"  {session.session_id}: {session.reason}")
    if comparison is not None:
        typer.echo(
            f"of {comparison.sessions:,} sessions that count under both judges, "
            f"{comparison.changed:,} have another return"
        )
        typer.echo(f"mean return: {comparison.mean_before:.4g}, then {comparison.mean_after:.4g}")
        typer.echo(f"advantages with another sign: {comparison.signs:,}")
        typer.echo(
            f"of {comparison.groups:,} groups with a signal, {comparison.lost:,} would lose it; "
            f"{comparison.gained:,} others would gain one"
        )
        if comparison.left_out:
            typer.echo(f"left out: {comparison.left_out:,} sessions that count under one alone")
    for line in exceeded:
        typer.echo(f"! {line}")
