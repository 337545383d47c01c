"""The command `seamlessflow audit`: checks that the log keeps its promises."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seamlessflow.commands.options import Out

if TYPE_CHECKING:
    from seamlessflow.infra.settings import KafkaSettings
    from seamlessflow.processes.stopping import Stop
    from seamlessflow.recorded.audit.auditor import AuditReport


def audit(
    out: Out = None,
    trained: Annotated[
        Path | None, typer.Option(help="Directory with the trained tokens; by default OUT/trained.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on while the system runs; print each violation at once."),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="With --follow: serve /metrics on loopback; 0: a free port."
        ),
    ] = None,
    ended: Annotated[
        bool,
        typer.Option(
            "--ended", help="All the run's processes have ended; with --out, this is detected."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print reports as JSON lines.")] = False,
) -> None:
    """Check that no command, turn, session, group or token was lost, doubled or changed.

    Reads requests, sessions, replies, trajectories and control, and changes nothing. Each violation
    names topic, partition and offset; the exit status is then 1.
    """
    from seamlessflow.processes.cluster import has_address, kafka_to_audit
    from seamlessflow.processes.stopping import stoppable
    from seamlessflow.recorded.audit.printing import Printing
    from seamlessflow.terminal import wide_console

    if metrics_port is not None and not follow:
        raise typer.BadParameter("--metrics-port: only with --follow")
    if out is not None:
        trained = trained or out / "trained"
        ended = ended or not has_address(out)
    printing = Printing(wide_console(), as_json, follow)
    with kafka_to_audit(out) as kafka, stoppable() as stop, printing:
        if metrics_port is not None:
            printing.serve(metrics_port)
        for report in _reports(kafka, trained, out, follow, ended, stop):
            printing.update(report)
        clean = printing.finish()
    raise typer.Exit(not clean)


def _reports(
    kafka: "KafkaSettings",
    trained: Path | None,
    out: Path | None,
    going_on: bool,
    ended: bool,
    stop: "Stop",
) -> "Iterator[AuditReport]":
    """Yield an audit's reports; a run that has ended gets only one."""
    from seamlessflow.infra.settings import load
    from seamlessflow.processes.cluster import has_address
    from seamlessflow.recorded.audit.audit import AuditSettings, audit, follow

    group = load(AuditSettings).manager.group

    def ending() -> bool:
        return stop.asked or (out is not None and not has_address(out))

    if going_on and not ending():
        yield from follow(kafka, trained, group=group, stopping=ending)
    else:
        yield audit(kafka, trained, group=group, ended=ended, stopping=lambda: stop.asked)
