"""The commands `seamlessflow topics create`, `check`, `list`, `acls` and `transactions`."""

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from seamlessflow.commands.options import Out
from seamlessflow.schemas.topics import DAY_MS, FOR_EVER, HOUR_MS, TOPICS

if TYPE_CHECKING:
    from rich.console import Console

    from seamlessflow.infra.settings import KafkaSettings
    from seamlessflow.inspection.topics.inspector import TopicInspector

app = typer.Typer(help="Topics on a Kafka cluster (SEAMLESSFLOW_KAFKA__*).")


_DURATION = re.compile(r"(\d+)([mhd])")
_COUNT_S = 60.0
_LEADERS_S = 10.0
_ENDS_S = 60.0
"""Time that a broker, just started on a busy machine, may take to lead all its partitions."""
_UNIT_MS = {"m": 60_000, "h": HOUR_MS, "d": DAY_MS}


@app.command()
def create(
    replication: Annotated[
        int | None,
        typer.Option(
            help="How many copies each partition has; by default 3, or as many as there are "
            "brokers. -1: the cluster's default."
        ),
    ] = None,
    min_insync: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Copies that must have a record before it is acknowledged; by default replication "
            "- 1.",
        ),
    ] = None,
    partitions: Annotated[
        list[str] | None,
        typer.Option(help="Partitions in a topic, such as prompts=128; can be repeated."),
    ] = None,
    retention: Annotated[
        list[str] | None,
        typer.Option(
            help="How long a topic keeps records: requests=7d, 12h or ever; can be repeated."
        ),
    ] = None,
) -> None:
    """Create the topics that are missing, dead-letter topics included. Waits for Kafka."""
    from seamlessflow.infra.kafka.topics.creation import TopicOptions, create_topics
    from seamlessflow.infra.settings import ProcessSettings, load

    options = TopicOptions(
        replication,
        min_insync,
        {name: _count(value) for name, value in _named(partitions, "--partitions")},
        {name: _milliseconds(value) for name, value in _named(retention, "--retention")},
    )
    made = create_topics(load(ProcessSettings).kafka, TOPICS.values(), options)
    for name in made:
        typer.echo(f"created {name}")
    if not made:
        typer.echo("all topics exist")


@app.command()
def check() -> None:
    """Compare the topics with the contract: partitions, copies, retention, clean-up, record sizes.

    Each fault is followed by the command that mends it; the exit status is then 1.
    """
    from seamlessflow.infra.settings import ProcessSettings, load
    from seamlessflow.inspection.topics.contract import topic_faults

    wrong = topic_faults(load(ProcessSettings).kafka)
    for fault in wrong:
        typer.echo(str(fault), err=True)
    if wrong:
        raise typer.Exit(1)
    typer.echo("all topics are as they should be")


@app.command(name="list")
def list_(
    out: Out = None,
    count: Annotated[
        bool,
        typer.Option("--count", help=f"Count the records by reading them, {_COUNT_S:g} s at most."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the list again every 2 s, until Ctrl-C.")
    ] = False,
) -> None:
    """List each topic; if a group shares its work, also each partition's owner and lag."""
    from seamlessflow.infra.settings import load
    from seamlessflow.inspection.topics.inspector import TopicInspector, TopicStateSettings
    from seamlessflow.processes.cluster import (
        WITHOUT_FOLLOWING,
        kafka_of_running,
        kafka_to_inspect,
    )
    from seamlessflow.terminal import wide_console

    if watch and count:
        raise typer.BadParameter("--count reads all topics once: without --watch")
    settings = load(TopicStateSettings)
    console = wide_console()
    if watch:
        settings = settings.model_copy(update={"kafka": kafka_of_running(out, WITHOUT_FOLLOWING)})
        with TopicInspector(settings) as inspector:
            _watch(inspector, console)
        return
    with kafka_to_inspect(out) as kafka:
        settings = settings.model_copy(update={"kafka": kafka})
        with TopicInspector(settings) as inspector:
            _list(inspector, console, kafka, count)


def _list(
    inspector: "TopicInspector", console: "Console", kafka: "KafkaSettings", count: bool
) -> None:
    from seamlessflow.inspection.topics.inspector import with_counts
    from seamlessflow.inspection.topics.state import LagGrowth
    from seamlessflow.inspection.topics.view import group_tables, topic_table

    states = inspector.look()
    if not states:
        typer.echo(
            "none that this user may see (Kafka hides topics without the permission Describe); "
            "if there are none, make them with: seamlessflow topics create"
        )
        return
    if count:
        states = with_counts(kafka, states, _COUNT_S)
    console.print(topic_table(states))
    if groups := [state.group for state in states if state.group]:
        console.print()
        console.print(group_tables(groups, LagGrowth()))


def _watch(inspector: "TopicInspector", console: "Console") -> None:
    from seamlessflow.inspection.topics.view import watch
    from seamlessflow.processes.stopping import Interrupted, stoppable

    with suppress(Interrupted), stoppable() as stop:
        watch(console, inspector.look, stop.wait)


@app.command()
def acls(
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the permissions, as the user in SEAMLESSFLOW_KAFKA__*."
        ),
    ] = False,
    principal_prefix: Annotated[
        str, typer.Option(help="Text put before a process kind to get its user's name.")
    ] = "seamlessflow-",
) -> None:
    """Print the permissions (ACLs) that each kind of process needs, as Kafka commands.

    Each kind has its own user. An administrator makes topics and users before that.
    """
    from seamlessflow.access import acl_commands, needs, permissions
    from seamlessflow.infra.kafka.topics.permissions import grant
    from seamlessflow.infra.settings import load
    from seamlessflow.inspection.topics.inspector import TopicStateSettings

    settings = load(TopicStateSettings)
    kafka = settings.kafka
    needed = needs(settings.manager.group, settings.agents.group, settings.rewards.group)
    for kind, access in needed.items():
        user = principal_prefix + kind
        wanted = permissions(access, kafka.topic_prefix)
        if create:
            grant(kafka, user, wanted)
            typer.echo(f"{user}: {len(wanted)} permissions")
        else:
            typer.echo(f"# {kind}")
            for line in acl_commands(kafka.bootstrap_servers, user, wanted):
                typer.echo(line)


@app.command()
def transactions(
    out: Out = None,
    end: Annotated[
        bool,
        typer.Option(
            "--end", help="End the hanging transactions; without it they are only listed."
        ),
    ] = False,
) -> None:
    """List the managers' open transactions, and end those that a Kafka restart left hanging.

    Kafka counts a hanging transaction as ended, but has not written so to a partition. Readers of
    committed records and offsets then wait there for ever. --end writes the end that Kafka had
    decided on, as Kafka's own record shows. The status is 1 while one hangs. Ending one needs the
    permission ClusterAction on the cluster.
    """
    from seamlessflow.infra.kafka.start.cluster import find_cluster
    from seamlessflow.infra.kafka.transactions.hanging import TransactionLookup
    from seamlessflow.processes.cluster import kafka_to_inspect

    with kafka_to_inspect(out) as kafka:
        find_cluster(kafka, limit_s=_LEADERS_S)
        lookup = TransactionLookup(kafka)
        try:
            open_transactions = lookup.find(_ENDS_S)
            for transaction in open_transactions:
                typer.echo(str(transaction))
                if end and transaction.hangs:
                    lookup.end(transaction)
                    typer.echo("  ended")
        finally:
            lookup.close()
    if not open_transactions:
        typer.echo("no transaction of a manager is open")
    elif not end and any(transaction.hangs for transaction in open_transactions):
        typer.echo("not ended: add --end")
        raise typer.Exit(1)


def _named(texts: list[str] | None, option: str) -> list[tuple[str, str]]:
    pairs = [(name, value) for name, _, value in (text.partition("=") for text in texts or ())]
    for name, _ in pairs:
        if name not in TOPICS:
            raise typer.BadParameter(f"{option} {name}: the topics are {', '.join(TOPICS)}")
    return pairs


def _count(value: str) -> int:
    if not value.isdecimal() or not int(value):
        raise typer.BadParameter(f"--partitions: {value!r} is not a number of at least 1")
    return int(value)


def _milliseconds(value: str) -> int:
    if value == "ever":
        return FOR_EVER
    if (match := _DURATION.fullmatch(value)) is None:
        raise typer.BadParameter(f"--retention: {value!r} is not like 90m, 12h, 7d or ever")
    return int(match[1]) * _UNIT_MS[match[2]]
