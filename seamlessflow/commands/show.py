"""The commands that show a session, `seamlessflow show` and `trace`.

`show` prints a session's token tree, now, in the past, or as it grows. `trace` prints a waterfall
from its task to the weights.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seamlessflow.commands.options import Out

_WAIT_S = 60.0
_AT_OF_ALL = (
    "--at is an offset of the session's partition of sessions; --records shows other topics also, "
    "whose offsets do not compare with it"
)


def show(
    session: Annotated[
        str | None,
        typer.Argument(help="The session's id; without it, the last sessions are listed."),
    ] = None,
    out: Out = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show a row for each token.")] = False,
    records: Annotated[
        bool,
        typer.Option("--records", help="Show all its records on all topics, instead of the tree."),
    ] = False,
    at: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Show it up to the event at this offset in its partition, inclusive; --records "
            "shows the offsets.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Show it as it grows, until it is finalized or Ctrl-C. Without a terminal, print "
            "a line for each event.",
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="With --follow: seconds to wait for a session that does not exist yet; by default "
            "60.",
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many sessions to list.")] = 20,
) -> None:
    """Show a session as it is on the log: its tree of tokens, masks, versions and match rules."""
    about_one = at is not None or follow or records or tokens
    _refuse(session is None and about_one, "--at, --follow, --records and --tokens need a SESSION")
    _refuse(wait is not None and not follow, "--wait goes with --follow")
    _refuse(follow and (at is not None or tokens), "--follow goes without --at and --tokens")
    _refuse(at is not None and records, _AT_OF_ALL)
    if session is None:
        _list(out, count)
    elif follow:
        _follow(session, out, records, _WAIT_S if wait is None else wait)
    else:
        _print(session, out, tokens, records, at)


def trace(
    session: Annotated[str, typer.Argument(help="The session's id or name.")],
    out: Out = None,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Show topic, partition and offset for each record.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show what happened to a session and when, from its task to the step that trained its tokens.

    All of it comes from the log, whether or not traces were exported.
    """
    import json

    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.show.log import load_history
    from seamlessflow.recorded.trace.view import waterfall_json, waterfall_view
    from seamlessflow.recorded.trace.waterfall import waterfall
    from seamlessflow.terminal import wide_console

    console = wide_console()
    skipped = Skipped()
    with kafka_to_inspect(out) as kafka:
        history = waterfall(*load_history(kafka, session, skipped))
    if as_json:
        typer.echo(json.dumps(waterfall_json(history), indent=1))
        for notice in skipped.notices:
            typer.echo(f"! {notice}", err=True)
    else:
        console.print(waterfall_view(history, console.width, offsets))
        _notices(skipped.notices)


def _refuse(wrong: bool, reason: str) -> None:
    if wrong:
        raise typer.BadParameter(reason)


def _list(out: Path | None, count: int) -> None:
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.show.log import initial_models, recent_trajectories
    from seamlessflow.recorded.show.session_view import list_view
    from seamlessflow.terminal import wide_console

    console = wide_console()
    skipped = Skipped()
    with kafka_to_inspect(out) as kafka:
        trajectories = recent_trajectories(kafka, count, skipped)
        models = initial_models(kafka, skipped)
    console.print(list_view(trajectories))
    for policy, model in models.items():
        console.print(f"policy {policy} began with {model}", style="dim", soft_wrap=True)
    _notices(skipped.notices)


def _print(session: str, out: Path | None, tokens: bool, records: bool, at: int | None) -> None:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.show.log import load_session, session_records
    from seamlessflow.recorded.show.record_view import records_view
    from seamlessflow.recorded.show.session_view import session_view
    from seamlessflow.terminal import wide_console

    console = wide_console()
    skipped = Skipped()
    with kafka_to_inspect(out) as kafka:
        loaded = load_session(kafka, session, skipped, at)
        spell = loaded.tokenizer.decode if loaded.tokenizer else None
        if records:
            session_id = loaded.session.opened.session_id
            view: RenderableType = records_view(session_records(kafka, session_id, skipped), spell)
        else:
            tree = session_view(loaded.session, spell, tokens)
            view = Group(tree, Text(loaded.place, "dim"))
    console.print(view)
    _notices(skipped.notices)


def _follow(session: str, out: Path | None, records: bool, wait_s: float) -> None:
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import WITHOUT_FOLLOWING, kafka_of_running
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.recorded.show.following import Following
    from seamlessflow.recorded.show.growing import GrowingLines, GrowingTree
    from seamlessflow.recorded.show.log import PolicyLookup
    from seamlessflow.recorded.show.observed import ObservedSession
    from seamlessflow.recorded.show.session_view import Spell
    from seamlessflow.terminal import wide_console

    console = wide_console()
    skipped = Skipped()
    kafka = kafka_of_running(out, WITHOUT_FOLLOWING)
    policies = PolicyLookup(kafka, skipped)

    def spell_of(observed: ObservedSession) -> Spell | None:
        if observed.session is None:
            return None
        tokenizer = policies.tokenizer(observed.session.opened.policy)
        return tokenizer.decode if tokenizer else None

    lines = records or not console.is_terminal
    display = GrowingLines(console, spell_of, records) if lines else GrowingTree(console, spell_of)
    observed = ObservedSession(session, policies.strictness)
    finalized = False
    try:
        with stoppable() as stop, display as shown:
            following = Following(kafka, observed, shown, lambda: stop.asked, records)
            finalized = following.run(wait_s, skipped)
    except Interrupted:
        pass  # asked to end: what is shown stays
    _notices(skipped.notices)
    if not finalized:
        console.print("not finalized yet", style="dim")
        sys.exit(Interrupted.status)


def _notices(notices: list[str]) -> None:
    from seamlessflow.terminal import wide_console

    for notice in notices:
        wide_console().print(f"! {notice}", style="yellow", highlight=False, markup=False)
