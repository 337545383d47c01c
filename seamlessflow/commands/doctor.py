"""The command `seamlessflow doctor`: checks that this machine can run the system."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seamlessflow.inspection.findings import Finding

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def doctor(
    out: Annotated[Path, typer.Option(help="Directory that a later run will use.")] = Path(
        ".seamlessflow"
    ),
    model: Annotated[
        Path | None, typer.Option(help="A model to check, as in policy.model.")
    ] = None,
    renderer: Annotated[
        str,
        typer.Option(help="Renderer settings for --model, as JSON; without a name, one is found."),
    ] = "{}",
) -> None:
    """Check Java, disk, memory, ports, versions, a model's tokenizer and template, and the broker.

    Also names the release whose records this installation writes, and the logs that it reads. The
    broker is the one in SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS, if that is set. Every fault is shown
    with its remedy. The exit status is 1 if a fault keeps the system from running.
    """
    from seamlessflow.infra.settings import ProcessSettings, load
    from seamlessflow.inspection.doctor import examine
    from seamlessflow.inspection.findings import failed

    configured = any(name.startswith("SEAMLESSFLOW_KAFKA") for name in os.environ)
    kafka = load(ProcessSettings).kafka if configured else None
    findings = show(examine(out, model, renderer, kafka))
    raise typer.Exit(failed(findings))


def show(findings: "Iterable[Finding]") -> "list[Finding]":
    """Print each finding as soon as it is known, with its remedy; return all."""
    from rich.text import Text

    from seamlessflow.terminal import clean_console

    console = clean_console(soft_wrap=True, highlight=False)
    shown = []
    for finding in findings:
        shown.append(finding)
        what = (finding.what, "bold")
        console.print(Text.assemble(_MARKS[finding.grade], " ", what, f" {finding.detail}"))
        if finding.remedy:
            console.print(Text(f"    → {finding.remedy}", "dim"))
    return shown
