"""The command `seamlessflow report`: one HTML file about a run, to mail and to keep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seamlessflow.commands.options import Out

if TYPE_CHECKING:
    from seamlessflow.infra.settings import KafkaSettings
    from seamlessflow.processes.stopping import Stop
    from seamlessflow.recorded.audit.auditor import AuditReport


def report(
    out: Out = None,
    to: Annotated[Path, typer.Option(help="File to write; an existing one is replaced.")] = Path(
        "report.html"
    ),
    audited: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Whether to audit the log for it.")
    ] = True,
) -> None:
    """Write one page about a run: curves, symptoms, timeline, sessions to read, settings, audit.

    The page loads nothing from elsewhere. A run under way is shown as it is now; see
    docs/console.md.
    """
    from seamlessflow.checks.packages import require

    require("console", "starlette", "jinja2")
    from seamlessflow.console.web.report import report_of
    from seamlessflow.infra.disk import whole_file
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.terminal import long_job_console

    if not to.absolute().parent.is_dir():
        raise typer.BadParameter(f"--to {to}: there is no folder {to.absolute().parent}")
    console = long_job_console()
    trained = None if out is None else out / "trained"
    try:
        with stoppable() as stop, kafka_to_inspect(out) as kafka, console.status("reading") as line:
            line.update("auditing the log")
            result = _audited(kafka, out, trained, stop) if audited else None
            html = report_of(
                kafka,
                str(out or kafka.topic_prefix.strip(".") or "the run"),
                trained,
                result,
                lambda read, left: line.update(f"{read:,} records read, {left:,} left"),
                lambda: stop.asked,
            )
    except Interrupted:
        raise typer.Exit(Interrupted.status) from None
    with whole_file(to) as draft:
        draft.write(html.encode(errors="replace"))
    typer.echo(to)


def _audited(
    kafka: "KafkaSettings", out: Path | None, trained: Path | None, stop: "Stop"
) -> "AuditReport":
    from seamlessflow.infra.settings import load
    from seamlessflow.processes.cluster import has_address
    from seamlessflow.recorded.audit.audit import AuditSettings, audit

    ended = out is not None and not has_address(out)
    group = load(AuditSettings).manager.group
    return audit(kafka, trained, group=group, ended=ended, stopping=lambda: stop.asked)
