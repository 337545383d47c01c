"""The command `seamlessflow stops`: it tries a rule that ends turns on recorded turns."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from seamlessflow.commands.options import AsJson, Out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seamlessflow.recorded.stops import Tried


def stops(
    rule: Annotated[
        str, typer.Argument(help="Rule to try: confidence, repetition, budget, or module:function.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SETTING=VALUE[,VALUE]]...",
            help="Settings for the rule; with several values, each combination is tried.",
        ),
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Try a rollout.control rule on recorded turns: tokens saved, passes lost, by threshold.

    Without settings, confidence is tried with thresholds that stop about 5 to 40 % of the turns.
    Its log-probs must be recorded: rollout.control.record_top.
    """
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.processes.stopping import stoppable
    from seamlessflow.recorded.stops import built, grid, recorded_sessions, tried
    from seamlessflow.terminal import reading_bar

    chosen = grid(settings or [])
    for values in chosen if settings else []:
        built(rule, values)  # what can never stop a turn is refused before anything is read
    skipped = Skipped()
    with stoppable() as stop, kafka_to_inspect(out) as kafka, reading_bar() as show:
        sessions = list(recorded_sessions(kafka, skipped, show, lambda: stop.asked))
    outcomes = tried(rule, chosen if settings else None, sessions)
    if as_json:
        typer.echo(orjson.dumps([asdict(outcome) for outcome in outcomes]).decode())
    else:
        _show(rule, outcomes)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)


def _show(rule: str, outcomes: "Sequence[Tried]") -> None:
    if not outcomes:
        typer.echo(f"no threshold of {rule} would stop a turn of this run")
        return
    first = outcomes[0]
    typer.echo(
        f"{rule} on {first.turns:,} turns of {first.sessions:,} sessions, {first.passes:,} of "
        f"which passed, with {first.tokens:,} tokens"
    )
    typer.echo(f"{'settings':<28} {'turns stopped':>14} {'tokens saved':>18} {'passes lost':>18}")
    for outcome in outcomes:
        settings = ", ".join(f"{name}={value}" for name, value in outcome.settings.items())
        stopped = f"{outcome.turns_stopped:,}"
        saved = _part(outcome.tokens_saved, outcome.tokens)
        lost = _part(outcome.passes_lost, outcome.passes)
        typer.echo(f"{settings or 'defaults':<28} {stopped:>14} {saved:>18} {lost:>18}")
    typer.echo("A pass is counted as lost if any turn of its session would have been stopped.")


def _part(count: int, whole: int) -> str:
    return f"{count:,} ({count / whole:.1%})" if whole else f"{count:,}"
