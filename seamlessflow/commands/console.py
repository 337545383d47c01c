"""The command `seamlessflow console`: pages of a run, live or at any moment of its log."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seamlessflow.commands.options import Out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from seamlessflow.console.log.audit_child import AuditCommand
    from seamlessflow.console.web.console import RunBeside, ShownRun
    from seamlessflow.infra.settings import KafkaSettings
    from seamlessflow.processes.stopping import Stop

_PORT = 8750


def console(
    out: Out = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0: a free one.")
    ] = _PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others can reach needs a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token; by default each start makes a new token."),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            help="Directory of another run, whose curves and timeline are shown beside this one's; "
            "can be repeated."
        ),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Audit the log at the same time; each page shows the result."),
    ] = False,
) -> None:
    """Show a run in a browser: what it does now, its sessions, all records; at any moment.

    It only reads. Ctrl-C ends it; see docs/console.md.
    """
    from seamlessflow.checks.packages import require

    require("console", "starlette", "jinja2")
    from seamlessflow.console.web.server import address, listener, serve, token_for
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.processes.stopping import Interrupted, stoppable

    token = token_for(host, token_file)
    try:
        with stoppable() as stop:
            others = dict(_read(beside or (), stop))
        with stoppable() as stop, kafka_to_inspect(out) as kafka, listener(host, port) as listening:
            typer.echo(f"the console is at {address(listening, token)}")
            run = _shown(out, kafka, others)
            audited = _audited(out, kafka) if audit else None
            serve(kafka, listening, host, token, run, lambda: stop.asked, audited)
    except Interrupted:
        pass  # asked to end while the broker started


def _shown(
    out: Path | None, kafka: "KafkaSettings", others: "Mapping[str, RunBeside]"
) -> "ShownRun":
    """Return the run in a directory, or on a Kafka, with others beside it."""
    from seamlessflow.console.web.console import ShownRun
    from seamlessflow.infra.settings import load
    from seamlessflow.inspection.topics.inspector import TopicStateSettings

    return ShownRun(
        name=str(out or kafka.topic_prefix.strip(".") or "the run"),
        option=f" --out {shlex.quote(str(out))}" if out is not None else "",
        trained=None if out is None else out / "trained",
        beside=others,
        groups=load(TopicStateSettings).groups,
    )


def _audited(out: Path | None, kafka: "KafkaSettings") -> "AuditCommand":
    """Return the command that audits the same log: once, if the run has ended."""
    from seamlessflow.console.log.audit_child import AuditCommand
    from seamlessflow.processes.cluster import has_address
    from seamlessflow.processes.specs import as_json

    command = [sys.executable, "-P", "-m", "seamlessflow", "audit", "--json"]
    if out is None:
        return AuditCommand([*command, "--follow"], os.environ)
    # Not --out: for an ended run the console has started the broker, and a second must not start.
    environment = {**os.environ, "SEAMLESSFLOW_KAFKA": as_json(kafka)}
    lives = has_address(out)
    trained = ("--trained", str(out / "trained"))
    return AuditCommand([*command, *trained, "--follow" if lives else "--ended"], environment)


def _read(directories: "Iterable[Path]", stop: "Stop") -> "Iterator[tuple[str, RunBeside]]":
    """Yield the runs in directories, each read once, as it is now."""
    from seamlessflow.console.web.server import run_beside
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import kafka_to_inspect

    skipped = Skipped()
    for directory in directories:
        with kafka_to_inspect(directory) as kafka:
            name = str(directory)
            yield name, run_beside(kafka, name, skipped, lambda: stop.asked)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)
