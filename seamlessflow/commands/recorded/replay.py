"""The commands `seamlessflow replay merge`, `match` and `train`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

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
from seamlessflow.commands.recorded.fork import fork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seamlessflow.recorded.merge.rules import MergeRules

app = typer.Typer(help="Use recorded sessions as input.", no_args_is_help=True)
app.command()(fork)


class _Siblings(StrEnum):
    CONTINUED = "continued"
    ALL = "all"


class _Threads(StrEnum):
    RECORDED = "recorded"
    TOKENS = "tokens"


class _Strictness(StrEnum):
    EXACT = "exact"
    ARGUMENTS = "arguments"
    CONTENT = "content"
    IDS = "ids"


class _Purpose(StrEnum):
    TRAIN = "train"
    EVAL = "eval"


MergePrefix = Annotated[
    str | None,
    typer.Option(help="Prefix for the topic to write, such as again. for again.trajectories."),
]
ToDirectory = Annotated[
    Path | None,
    typer.Option(help="Directory that gets a file with Avro records for each partition."),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Compare with the recorded trajectories, byte by byte.")
]
Diff = Annotated[
    bool,
    typer.Option("--diff", help="Show what each rule changes; for one session, also its trees."),
]
FoldVersion = Annotated[
    int | None, typer.Option(min=1, help="Version of the fold rules; see docs/manager/rules.md.")
]
TrainInexact = Annotated[
    bool | None,
    typer.Option(
        "--train-inexact/--mask-inexact",
        help="Whether to train turns that were not sampled from the policy's own distribution.",
    ),
]
TrainUndelivered = Annotated[
    bool | None,
    typer.Option(
        "--train-undelivered/--mask-undelivered", help="Whether to train turns that no client got."
    ),
]
Siblings = Annotated[
    _Siblings | None, typer.Option(help="Which of several samples for one prompt are trained.")
]
Purpose = Annotated[_Purpose | None, typer.Option(help="Purpose for all sessions, such as train.")]
Threads = Annotated[
    _Threads, typer.Option(help="tokens: a turn continues where it shares most tokens.")
]
ReturnOf = Annotated[
    list[str] | None,
    typer.Option(
        "--return", help="A reward's weight in the return, such as correct=1; can be repeated."
    ),
]
Rewards = Annotated[
    Path | None, typer.Option(help="JSON lines with session_id, value and, if you like, name.")
]
WithLateRewards = Annotated[
    bool,
    typer.Option(
        "--late-rewards", help="Also take judges' rewards that came after their session had ended."
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that merge; the default depends on the log's size."),
]


@app.command()
def merge(
    sessions: SessionNames = None,
    out: Out = None,
    groups: Groups = None,
    tasks: Tasks = None,
    offsets: Offsets = None,
    since: Since = None,
    until: Until = None,
    versions: Versions = None,
    to: MergePrefix = None,
    to_directory: ToDirectory = None,
    verify: Verify = False,
    diff: Diff = False,
    fold_version: FoldVersion = None,
    train_inexact: TrainInexact = None,
    train_undelivered: TrainUndelivered = None,
    siblings: Siblings = None,
    purpose: Purpose = None,
    threads: Threads = _Threads.RECORDED,
    return_of: ReturnOf = None,
    rewards: Rewards = None,
    late_rewards: WithLateRewards = False,
    processes: Processes = None,
    as_json: AsJson = False,
) -> None:
    """Merge recorded sessions again, and write, verify or compare them, or only count.

    Whole sessions are merged, each from its first event, up to where the log ends now. The recorded
    run's topics, consumer groups and offsets stay as they are.
    """
    from seamlessflow.commands.jobs.merge import MergeOptions, run_merge
    from seamlessflow.recorded.select.options import selection

    chosen = selection(
        sessions or (), groups or (), tasks or (), offsets or (), since, until, versions
    )
    masks = _Masks(train_inexact, train_undelivered, siblings)
    rules = _rules(fold_version, masks, purpose, threads, return_of or (), rewards)
    run_merge(
        MergeOptions(
            out, chosen, rules, to, to_directory, verify, diff, processes, as_json, late_rewards
        )
    )


class _Masks(NamedTuple):
    train_inexact: bool | None
    train_undelivered: bool | None
    siblings: _Siblings | None


def _rules(
    fold_version: int | None,
    masks: _Masks,
    purpose: _Purpose | None,
    threads: _Threads,
    return_of: "Sequence[str]",
    rewards: Path | None,
) -> "MergeRules":
    from seamlessflow.recorded.merge.rules import MergeRules, judgements
    from seamlessflow.recorded.select.options import weights

    return MergeRules(
        fold_version=fold_version,
        train_inexact=masks.train_inexact,
        train_undelivered=masks.train_undelivered,
        siblings=masks.siblings.value if masks.siblings else None,
        purpose=purpose.value if purpose else None,
        threads=threads.value,
        return_of=weights(return_of),
        judged=judgements(rewards) if rewards else {},
    )


@app.command()
def match(
    sessions: SessionNames = None,
    out: Out = None,
    groups: Groups = None,
    tasks: Tasks = None,
    offsets: Offsets = None,
    since: Since = None,
    until: Until = None,
    versions: Versions = None,
    strictness: Annotated[
        _Strictness | None,
        typer.Option(help="How to compare messages, instead of the recorded way."),
    ] = None,
    renderer: Annotated[
        str | None,
        typer.Option(help="Renderer to try: a name, or a setting such as thinking_retention=all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count by which rule turns would have been matched with another strictness or renderer.

    Writes nothing: each turn is tried against its session as it was recorded.
    """
    from seamlessflow.commands.jobs.match import MatchOptions, run_match
    from seamlessflow.recorded.select.options import selection

    chosen = selection(
        sessions or (), groups or (), tasks or (), offsets or (), since, until, versions
    )
    run_match(
        MatchOptions(out, chosen, strictness.value if strictness else None, renderer, as_json)
    )


@app.command()
def train(
    out: Out = None,
    policy: Annotated[str | None, typer.Option(help="Policy, if the run trained several.")] = None,
    replaced: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another setting, such as trainer.loss.name=tis; repeat."),
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=1, help="Steps to execute; by default all.")
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=1, help="End in this step, before its update; needs --tensors."),
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=0, help="End after this micro-batch in --step, from 0.")
    ] = None,
    tensors: Annotated[
        Path | None,
        typer.Option(
            help="File with each tensor's hash at the end: written, or compared if there."
        ),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Directory for the last weights.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="PNG that shows both trainings, by step.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Execute a run's optimizer steps again, and compare tensors or, with --set, metrics.

    It uses the recorded trajectories, without agents, gateway, scheduler or engines. On the machine
    kind that trained, tensors come out equal; elsewhere the difference is shown.
    """
    from seamlessflow.commands.jobs.retrain import TrainOptions, run_training_again

    run_training_again(
        TrainOptions(
            out=out,
            policy=policy,
            replaced=tuple(replaced or ()),
            until=until,
            step=None if step is None else step - 1,
            micro_batch=micro_batch,
            tensors=tensors,
            weights=weights,
            picture=picture,
            as_json=as_json,
        )
    )
