"""The commands `seamlessflow share key`, `publish` and `take`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seamlessflow.commands.options import Groups, Tasks

if TYPE_CHECKING:
    from seamlessflow.recorded.share.publishing import PublishingOutcome
    from seamlessflow.recorded.share.taking import TakingOutcome

app = typer.Typer(help="Exchange groups with other runs, as signed text.", no_args_is_help=True)
_LOOK_S = 5.0
Config = Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")]
RunOut = Annotated[
    Path | None,
    typer.Option(help="Directory of the run, live or ended; by default the configuration's out."),
]


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="New file for the private key (share.sign_with).")],
) -> None:
    """Make a key: write the private part to a file that is only yours, and print the public part.

    Others name the public key in share.signers.
    """
    from seamlessflow.checks.packages import require

    require("share", "cryptography")
    from seamlessflow.recorded.share.keys import SigningKey

    typer.echo(SigningKey.make(file).public)


@app.command()
def publish(
    config: Config,
    to: Annotated[
        str, typer.Option(help="Prefix for the topic to write, such as team. for team.shared.")
    ],
    out: RunOut = None,
    groups: Groups = None,
    tasks: Tasks = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is trained later, until Ctrl-C.")
    ] = False,
) -> None:
    """Publish as signed text the groups that a step trained and that have a pass.

    Each task's whole line is published too. No group is published twice.
    """
    from seamlessflow.checks.packages import require

    require("share", "cryptography")
    from seamlessflow.config_file import load
    from seamlessflow.named_models import Fetched
    from seamlessflow.processes.stopping import stoppable
    from seamlessflow.recorded.select.options import selection
    from seamlessflow.recorded.share.publishing import Publishing
    from seamlessflow.runs.sharing import before_publishing, kafka_of, publishing_job

    loaded = load(config, before_publishing, fetched=Fetched.NONE)
    chosen = selection(groups=groups or (), tasks=tasks or ())
    with stoppable() as stop, kafka_of(loaded, out) as kafka:
        job = publishing_job(loaded, kafka, to, chosen)
        publishing = Publishing(kafka, job, lambda: stop.asked)
        try:
            publishing.update()
            while follow:
                stop.wait(_LOOK_S)
                publishing.update()
        finally:
            _print_published(publishing.outcome, to)
            _print(publishing.skipped.notices, "! {}".format)


@app.command()
def take(
    config: Config,
    from_: Annotated[
        str,
        typer.Option("--from", help="Prefix of the topic to read, such as team. for team.shared."),
    ],
    to: Annotated[
        str, typer.Option(help="Prefix for the pool, such as pool. for pool.trajectories.")
    ],
    out: RunOut = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is published later, until Ctrl-C.")
    ] = False,
) -> None:
    """Take the groups that are signed with a key in share.signers, for a pool in trainer.replay.

    Texts are rendered for policy.model and rewarded by share.judge. What is left out goes to dead
    letters under the pool's prefix, with its reason. No group is taken twice.
    """
    from seamlessflow.checks.packages import require

    require("share", "cryptography")
    from seamlessflow.config_file import load
    from seamlessflow.named_models import Fetched
    from seamlessflow.processes.stopping import stoppable
    from seamlessflow.recorded.share.taking import TakingJob, TakingOutcome
    from seamlessflow.recorded.share.taking import take as take_groups
    from seamlessflow.runs.sharing import before_taking, kafka_of, taking_rules

    loaded = load(config, before_taking, fetched=Fetched.WITHOUT_WEIGHTS)
    outcome = TakingOutcome()
    with stoppable() as stop, kafka_of(loaded, out) as kafka:
        job = TakingJob(from_, to, taking_rules(loaded), follow)
        try:
            take_groups(kafka, job, outcome, lambda: stop.asked)
        finally:
            _print_taken(outcome, to)


def _print_published(outcome: "PublishingOutcome", to: str) -> None:
    lines = [
        f"published {outcome.published:,} groups with {outcome.sessions:,} sessions on {to}shared"
    ]
    counts = {
        "published before": outcome.already_published,
        "without a pass": outcome.without_pass,
        "with more text or answers than a taker reads": outcome.not_taken,
    }
    _print([*lines, *(f"{count:,} {what}" for what, count in counts.items() if count)])


def _print_taken(outcome: "TakingOutcome", to: str) -> None:
    lines = [
        f"took {outcome.groups:,} groups with {outcome.sessions:,} sessions and "
        f"{outcome.tokens:,} tokens to {to}trajectories"
    ]
    counts = {"taken before": outcome.already_taken, "of the run's own key": outcome.passed_over}
    lines += [f"{count:,} {what}" for what, count in counts.items() if count]
    for reason, count in sorted(outcome.left_out.items()):
        lines.append(f"left out: {count:,} {reason}")
    if outcome.left_out:
        lines.append(f"those are on {to}shared.dlq, each with its reason")
    _print(lines)


def _print(lines: list[str], form: Callable[[str], str] = str) -> None:
    for line in lines:
        typer.echo(form(line))
