"""Work that the command `replay train` starts: progress, comparison, exit status."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
import typer
from rich.console import Console

from seamlessflow.checks.packages import require
from seamlessflow.infra.disk import check_directory, check_file
from seamlessflow.infra.errors import ExitStatus, SettingsRejected
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.processes.stopping import Interrupted, Stop, stoppable
from seamlessflow.recorded.retrain.again import (
    TrainingAgain,
    recorded_training,
    training_again,
)
from seamlessflow.recorded.retrain.reexecution import RepeatedStep
from seamlessflow.recorded.retrain.tensors import (
    StepTensors,
    check_place,
    compared,
    first_difference,
    known_step,
    known_tensors,
    step_tensors,
    write_step,
)
from seamlessflow.recorded.retrain.view import COMPARED, outcome_lines, step_line, steps_json
from seamlessflow.schemas.tokens import shown_step, step_name
from seamlessflow.terminal import clean_console


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """The command's options."""

    out: Path | None
    policy: str | None
    replaced: tuple[str, ...]
    until: int | None
    """Step before which it ends."""
    step: int | None
    """Step in which it ends before the update, to look at tensors; counted from 0 as in records."""
    micro_batch: int | None
    """Micro-batch in that step after which it ends; None: the last one."""
    tensors: Path | None
    weights: Path | None
    picture: Path | None
    as_json: bool


def run_training_again(options: TrainOptions) -> None:
    """Execute the steps again, and print how they compare.

    Raises `typer.Exit` if tensors differ although the machine is the recorded kind.
    """
    console = clean_console(stderr=options.as_json, highlight=False, soft_wrap=True)
    _check(options)
    one_step = options.step is not None
    expected = known_tensors(options.tensors) if options.tensors and not one_step else None
    known_place = _known_place(options)
    try:
        with stoppable() as stop, kafka_to_inspect(options.out) as kafka:
            skipped = Skipped()
            recorded = recorded_training(
                kafka, options.policy, options.replaced, skipped, lambda: stop.asked, options.out
            )
            if options.step is not None:
                recorded.check_place(options.step, options.micro_batch, lambda: stop.asked)
            with training_again(recorded, skipped, lambda: stop.asked) as again:
                if again.machine_differs:
                    console.print(f"another machine: {again.machine_differs}; tensors may differ")
                for line in again.resumptions:
                    console.print(line)
                steps = _executed(console, again, options, stop)
                if options.step is not None:
                    _inspect(console, again, options, options.step, known_place)
                else:
                    _write(console, again, steps, options, expected)
    except Interrupted:
        console.print("stopped as asked; nothing was kept")
        sys.exit(Interrupted.status)
    for line in (*outcome_lines(steps, again.ablation), *skipped.notices):
        console.print(line)
    if options.as_json:
        print(orjson.dumps(steps_json(steps), option=orjson.OPT_INDENT_2).decode())
    differs = any(step.recorded.tensors_hash and not step.equal for step in steps)
    if differs and not again.ablation and not again.machine_differs:
        raise typer.Exit(ExitStatus.LASTING)


def _check(options: TrainOptions) -> None:
    """Raise `SettingsRejected` if options contradict each other, or a path cannot be written.

    Raises `ExtraMissing` if no installed package can draw the picture.
    """
    if options.weights is not None:
        if options.weights.exists():
            raise SettingsRejected("--weights", f"{options.weights} is there")
        check_directory("--weights", options.weights)
    for option, path in (("--tensors", options.tensors), ("--picture", options.picture)):
        if path is not None:
            check_file(option, path)
    if options.picture is not None:
        require("charts", "matplotlib")
        if options.picture.suffix != ".png":
            raise SettingsRejected("--picture", f"{options.picture} does not end with .png")
    if options.micro_batch is not None and options.step is None:
        raise SettingsRejected("--micro-batch", "needs --step")
    if options.step is None:
        return
    if options.tensors is None:
        raise SettingsRejected("--step", "needs --tensors, the file to write or to compare with")
    if options.until is not None or options.weights is not None or options.picture is not None:
        raise SettingsRejected("--step", "excludes --until, --weights and --picture")


def _known_place(options: TrainOptions) -> StepTensors | None:
    """Return the step's tensors in the file `--tensors`, or None if the file is new.

    Raises `SettingsRejected` if the file has another step or micro-batch than is asked for.
    """
    if options.step is None or options.tensors is None:
        return None
    expected = known_step(options.tensors)
    if expected is not None:
        last = expected.micro_batch if options.micro_batch is None else options.micro_batch
        check_place(options.tensors, expected, options.step, last)
    return expected


def _executed(
    console: Console, again: TrainingAgain, options: TrainOptions, stop: Stop
) -> list[RepeatedStep]:
    steps = []
    until = options.until if options.step is None else options.step
    for step in again.steps.run(again.received, until):
        console.print(step_line(step, again.ablation))
        steps.append(step)
        stop.check()
    return steps


def _inspect(
    console: Console,
    again: TrainingAgain,
    options: TrainOptions,
    number: int,
    expected: StepTensors | None,
) -> None:
    """Execute a step up to a micro-batch; write its tensors, or compare them with `expected`."""
    path = options.tensors
    if path is None:
        return
    step = again.steps.begin(again.received, number)
    if step is None or not step.micro_batches:
        raise SettingsRejected("--step", f"{step_name(number)} trained nothing")
    computed = step_tensors(again.steps.backend, step, number, options.micro_batch)
    if expected is not None:
        console.print(compared(path, expected, computed))
        return
    write_step(path, computed)
    last = computed.micro_batch
    count = len(step.micro_batches)
    console.print(f"wrote {len(computed.hashes)} tensors of {step_name(number)}: {path}")
    console.print(f"up to micro-batch {last} of {count}, counted from 0")


def _write(
    console: Console,
    again: TrainingAgain,
    steps: list[RepeatedStep],
    options: TrainOptions,
    expected: Mapping[str, str] | None,
) -> None:
    """Write the tensors' hashes, the weights and the picture, as far as they are asked for."""
    if options.tensors is not None:
        tensors = again.steps.tensors()
        if expected is None:
            options.tensors.write_text(json.dumps(tensors, indent=1, sort_keys=True))
            console.print(f"wrote the hash of each tensor: {options.tensors}")
        elif (differs := first_difference(expected, tensors)) is None:
            console.print(f"all tensors are those of {options.tensors}")
        else:
            console.print(f"the first tensor that differs from {options.tensors}: {differs}")
    if options.weights is not None:
        options.weights.mkdir(parents=True)
        again.steps.backend.write_weights(options.weights)
        console.print(f"weights: {options.weights}")
    if options.picture is not None:
        _plot(options.picture, steps, options)
        console.print(f"picture: {options.picture}")


def _plot(path: Path, steps: list[RepeatedStep], options: TrainOptions) -> None:
    from seamlessflow.reports.charts import plot_comparison

    title = ", ".join(options.replaced) or "executed again"
    recorded = {shown_step(step.recorded.step): step.recorded.metrics for step in steps}
    repeated = {shown_step(step.recorded.step): step.metrics for step in steps}
    plot_comparison(title, COMPARED, recorded, repeated, path)
