"""The command `seamlessflow eval`: evaluate a policy version, or compare two evaluations."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seamlessflow.reports.evaluations.result import EvaluatedSet
    from seamlessflow.runs.evaluation_run import EvaluationChoice, EvaluationRun


def _sampled(temperature: float | None) -> float | None:
    """Return a temperature at which engines sample. Raises `BadParameter`."""
    from seamlessflow.infra.settings import COLDEST

    if temperature is not None and 0 < temperature < COLDEST:
        raise typer.BadParameter(f"must be 0 (greedy), or {COLDEST:g} or more")
    return temperature


_VERSION = re.compile(r"@\d+$")
"""Suffix to a run directory, which names one of its versions, such as `@7`."""
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=2,
        callback=_sampled,
        help="Sampling temperature; 0: greedy. By default as evaluation.sampling says.",
    ),
]


OfTasks = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Tasks: a file with a JSON object on each line, or environment:SETTINGS. By default "
        "as in the configuration.",
    ),
]
OfVersion = Annotated[
    int | None, typer.Option(min=0, help="The run's policy version; by default the newest.")
]
OfModel = Annotated[
    Path | None, typer.Option(help="A model to evaluate instead of a version, as in policy.model.")
]
Compared = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--compare",
        metavar="A B",
        help="Compare two, task by task: results (directories below OUT/evaluations); runs, by OUT "
        "(their last rounds) or OUT@VERSION; or with --config, versions that are evaluated first.",
    ),
]
FailBelow = Annotated[
    float | None,
    typer.Option(
        help="End with status 1 if a set's mean reward is lower than this; with --compare, if the "
        "difference B - A is."
    ),
]


def evaluate(
    config: Annotated[
        Path | None, typer.Option(help="Run configuration, YAML or TOML; needed to evaluate.")
    ] = None,
    tasks: OfTasks = None,
    chosen: Annotated[
        str | None,
        typer.Option("--set", help="One of evaluation.sets; by default all, one after the other."),
    ] = None,
    version: OfVersion = None,
    weights: OfModel = None,
    temperature: Temperature = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Sessions for each task; by default evaluation.samples."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first tasks in each set, this many.")
    ] = None,
    compared: Compared = None,
    fail_below: FailBelow = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a comparison as JSON, with all changed tasks.")
    ] = False,
) -> None:
    """Run the agent on tasks with a policy version and report rewards, chances to pass and costs.

    Its sessions never reach an optimizer step. Data, logs, evaluation.json and tasks.jsonl are
    written below OUT/evaluations. --compare compares two such results, task by task.
    """
    from seamlessflow.runs.evaluation_run import EvaluationChoice

    _refuse_together(compared, version=version, weights=weights)
    if config is None and compared is None:
        raise typer.BadParameter("is needed to evaluate", param_hint="--config")
    choice = EvaluationChoice(tasks, chosen, limit, temperature, samples)

    def ended(number: int | None) -> "EvaluationRun":
        if config is None:
            raise typer.BadParameter(f"version {number} needs --config", param_hint="--compare")
        return _evaluated(config, number, weights, choice)

    if compared is None:
        _report(ended(version), fail_below)
    else:
        sides = [_of_set(chosen, _read(side, ended)) for side in compared]
        _compare(sides, fail_below, as_json)


def _refuse_together(compared: tuple[str, str] | None, **others: object) -> None:
    """Raise `BadParameter` for an option beside `--compare`, which names what is evaluated."""
    for name, value in others.items():
        if compared is not None and value is not None:
            raise typer.BadParameter("has no place beside --compare", param_hint=f"--{name}")


def _evaluated(
    config: Path, version: int | None, weights: Path | None, choice: "EvaluationChoice"
) -> "EvaluationRun":
    """Evaluate weights in separate processes. Raises `SystemExit` if it is interrupted."""
    from seamlessflow.config_file import evaluated, no_task, parse, sections_of
    from seamlessflow.infra.weights.versions import lease
    from seamlessflow.listed_tasks import on_tasks
    from seamlessflow.named_models import named_directory
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.read_paths import is_listed
    from seamlessflow.runs.chosen_weights import choose_weights
    from seamlessflow.runs.evaluation_run import evaluation_check, run_evaluation
    from seamlessflow.terminal import clean_console
    from seamlessflow.watching.display import display

    sections = sections_of(config)
    if choice.tasks is not None and is_listed(choice.tasks):
        sections = on_tasks(sections, choice.tasks)
        choice = replace(choice, tasks=None)
    directory = None if weights is None else named_directory("--weights", weights)
    check = evaluation_check(version, directory, choice.file, choice.chosen)
    loaded = parse(sections, config, check, read_tasks=no_task if choice.tasks else evaluated)
    policy = choose_weights(loaded, version, directory)
    try:
        with (
            # The run may go on, and delete the version before the evaluation has its copy.
            lease(policy.directory),
            stoppable() as stop,
            display(clean_console(highlight=False), loaded.run.policy) as shown,
        ):
            return run_evaluation(loaded, policy, choice, shown, stop)
    except Interrupted:
        sys.exit(Interrupted.status)


def _report(ended: "EvaluationRun", least: float | None) -> None:
    """Print the figures. Raises `typer.Exit` if no session of a set counted, or for a low mean."""
    from seamlessflow.reports.evaluations.view import evaluation_table
    from seamlessflow.runs.evaluation_run import lines
    from seamlessflow.terminal import clean_console

    console = clean_console(highlight=False)
    for line in lines(ended):
        console.print(line)
    console.print(evaluation_table(ended.results))
    rewards = [result.reward for result in ended.results.values()]
    if any(reward is None or (least is not None and reward < least) for reward in rewards):
        raise typer.Exit(1)


def _read(
    side: str, ended: "Callable[[int | None], EvaluationRun]"
) -> "Mapping[str, EvaluatedSet]":
    """Return the sets in a result, in a run's rounds, or from a version that is evaluated first."""
    from seamlessflow.processes.cluster import has_kafka
    from seamlessflow.reports.evaluations.result import read_result

    if side.isdecimal() and not Path(side).exists():
        return read_result(ended(int(side)).out)
    run, _, version = side.rpartition("@") if _VERSION.search(side) else (side, "", "")
    place = Path(run)
    # An evaluation's directory has a Kafka too, but its result says more.
    if version or (has_kafka(place) and not (place / "evaluation.json").exists()):
        return _recorded(place, int(version) if version else None)
    return read_result(place)


def _of_set(chosen: str | None, sets: "Mapping[str, EvaluatedSet]") -> "Mapping[str, EvaluatedSet]":
    return {name: tasks for name, tasks in sets.items() if chosen in (None, name)}


def _recorded(out: Path, version: int | None) -> "Mapping[str, EvaluatedSet]":
    """Return the rounds in a run's log. Raises `typer.BadParameter` if there are none."""
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.infra.kafka.whole_topic import read_topic
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.processes.stopping import stoppable
    from seamlessflow.reports.evaluations.recorded import recorded_sets
    from seamlessflow.schemas.topics import CONTROL

    skipped = Skipped()
    with stoppable() as stop, kafka_to_inspect(out) as kafka:
        control = read_topic(kafka, CONTROL, skipped, stopping=lambda: stop.asked)
        sets = recorded_sets((item.record for item in control), version)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)
    if not sets:
        named = "" if version is None else f" of version {version}"
        raise typer.BadParameter(f"{out}: no evaluation{named} is over", param_hint="--compare")
    return sets


def _compare(
    sides: "Sequence[Mapping[str, EvaluatedSet]]", least: float | None, as_json: bool
) -> None:
    """Print the comparison. Raises `typer.Exit` if the second is too low."""
    from seamlessflow.reports.evaluations.comparison import compare
    from seamlessflow.reports.evaluations.view import comparison_view
    from seamlessflow.terminal import clean_console

    first, second = sides
    compared = compare(first, second)
    if as_json:
        typer.echo(json.dumps(compared.to_json(), indent=2))
    else:
        clean_console(highlight=False).print(comparison_view(compared))
    differences = [of_set.reward.difference for of_set in compared.sets.values()]
    if least is not None and min(differences) < least:
        raise typer.Exit(1)
