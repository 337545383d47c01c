"""The command `seamlessflow replay fork`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seamlessflow.commands.options import (
    AsJson,
    Groups,
    Offsets,
    Out,
    SessionNames,
    Since,
    Tasks,
    Until,
    Versions,
)


class _ToolResults(StrEnum):
    FIRST = "first"
    LAST = "last"
    EVERY = "every"


class _Behind(StrEnum):
    PROMPT = "prompt"
    ANSWER = "answer"


class _ForkMode(StrEnum):
    MIDDLE = "middle"
    PLAYBACK = "playback"


ForksFile = Annotated[
    Path, typer.Option("--to", help="File for the forks, with one JSON object on each line.")
]
TurnNamed = Annotated[
    str | None, typer.Option("--turn", help="A turn: its id, its number from 1, or last.")
]
AfterToolResult = Annotated[
    _ToolResults | None, typer.Option(help="All turns whose prompt ends with a tool's result.")
]
BeforeCompaction = Annotated[
    bool,
    typer.Option(
        "--before-compaction", help="The last turn before each time the history was shortened."
    ),
]
Behind = Annotated[
    _Behind, typer.Option(help="Begin after the turn's prompt, or after its answer.")
]
Append = Annotated[
    list[str] | None, typer.Option(help="User message that the agent adds first; can be repeated.")
]
Samples = Annotated[int, typer.Option(min=1, help="Samples in each group.")]
Mode = Annotated[
    _ForkMode,
    typer.Option(help="playback: the agent begins from the start and gets the recorded answers."),
]
RunTasks = Annotated[
    Path | None,
    typer.Option("--task-file", help="The run's task file, for tasks that are gone from the log."),
]


def fork(
    to: ForksFile,
    sessions: SessionNames = None,
    out: Out = None,
    groups: Groups = None,
    tasks: Tasks = None,
    offsets: Offsets = None,
    since: Since = None,
    until: Until = None,
    versions: Versions = None,
    turn: TurnNamed = None,
    after_tool_result: AfterToolResult = None,
    before_compaction: BeforeCompaction = False,
    behind: Behind = _Behind.PROMPT,
    append: Append = None,
    samples: Samples = 8,
    mode: Mode = _ForkMode.MIDDLE,
    task_file: RunTasks = None,
    as_json: AsJson = False,
) -> None:
    """Make recorded sessions the beginning of new ones: a file of tasks for `pacing.forks`.

    Each line has a place in a session: its exact tokens and messages, and the recorded task. These
    tokens are never trained again; all that is sampled behind them is trained.
    """
    from seamlessflow.commands.jobs.fork import ForkOptions, run_fork
    from seamlessflow.recorded.fork.forking import ForkJob
    from seamlessflow.recorded.fork.places import ForkRule, appended_message
    from seamlessflow.recorded.select.options import selection

    rule = ForkRule(
        turn,
        after_tool_result.value if after_tool_result else None,
        before_compaction,
        behind.value,
        mode.value,
        tuple(map(appended_message, append or ())),
    )
    chosen = selection(
        sessions or (), groups or (), tasks or (), offsets or (), since, until, versions
    )
    run_fork(ForkOptions(out, ForkJob(to, rule, samples, chosen, task_file), as_json))
