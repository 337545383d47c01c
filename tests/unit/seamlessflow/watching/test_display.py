"""Lines of steps where the display is no terminal."""

from collections.abc import Mapping
from io import StringIO

from rich.console import Console

from seamlessflow.watching.display import PlainDisplay, step_line
from seamlessflow.watching.progress import RunProgress
from tests.builders.records import control

SINCE = 1_000_000


def progress(
    *versions: tuple[int, int], at_ms: int = SINCE, metrics: Mapping[str, float] | None = None
) -> RunProgress:
    """Return the progress after steps, each with the version that it made."""
    made = RunProgress("p", total=20, since_ms=SINCE)
    for number, version in versions:
        made.apply(control.completed(number, version=version, at_ms=at_ms, metrics=metrics or {}))
    return made


def shown(display: PlainDisplay, output: StringIO, seen: RunProgress) -> list[str]:
    """Return the new lines, each up to its first figures."""
    output.seek(0)
    output.truncate()
    display.progress(seen)
    return [line.split(" · no reward")[0] for line in output.getvalue().splitlines()]


def test_each_step_has_a_line_with_its_figures_and_what_was_left_out() -> None:
    seen = progress(
        (2, 5),
        metrics={
            "reward_mean": 0.25,
            "tokens_trained": 1_234.0,
            "staleness_mean": 0.5,
            "staleness_max": 1.0,
            "masked/stale": 20.0,
            "filtered/zero_variance": 0.5,
            "filtered/untrainable": 0.0,
            "dropped/expired": 1.0,
            "samples_failed": 3.0,
        },
    )
    assert seen.last is not None
    assert step_line(seen.last, seen) == (
        "step 3/20 · version 5 · reward 0.250 · 1,234 tokens trained · staleness 0.5, at most 1 · "
        "left out: 1 groups dropped as expired, 50% of the groups by the filter zero_variance, "
        "20 tokens stale, 3 sessions failed"
    )


def test_a_line_comes_once_and_again_for_a_step_that_was_executed_again() -> None:
    output = StringIO()
    display = PlainDisplay(Console(file=output))

    seen = progress((0, 1), (1, 2))
    assert shown(display, output, seen) == ["step 1/20 · version 1", "step 2/20 · version 2"]
    assert shown(display, output, seen) == []
    seen.apply(control.completed(1, version=3, at_ms=SINCE, metrics={}))
    assert shown(display, output, seen) == ["step 2/20 · version 3"]


def test_steps_of_an_earlier_start_have_no_line() -> None:
    output = StringIO()
    earlier = progress((0, 1), at_ms=SINCE - 1)
    assert shown(PlainDisplay(Console(file=output)), output, earlier) == []
