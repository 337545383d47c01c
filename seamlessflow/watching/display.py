"""A running run's display: a live panel on a terminal, single lines elsewhere."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.metrics.unlearned import listed
from seamlessflow.watching.progress import RECENT_STEPS, RunProgress, Step

_BARS = "▁▂▃▄▅▆▇█"
_REFRESH_S = 0.5
_LINE_EVERY_STEPS = 10
_SHOWN_REWARDS = 60


class Display(Protocol):
    """Shows a run's phases and progress, as often as it likes. Used from one thread."""

    def phase(self, what: str) -> None:
        """Show that a new phase begins."""

    def notice(self, what: str) -> None:
        """Show a line that stays."""

    def progress(self, progress: RunProgress) -> None:
        """Show the progress; called often."""


class ShownFailures:
    """Failed samples that were shown: each new kind in full, and all kinds with counts at last."""

    def __init__(self, notice: Callable[[str], object]) -> None:
        self._notice = notice
        self._shown: set[str] = set()
        self._progress: RunProgress | None = None

    def show_new(self, progress: RunProgress) -> None:
        """Show the kinds that were not shown yet."""
        self._progress = progress
        for kind, failed in progress.failures.items():
            if kind not in self._shown:
                self._shown.add(kind)
                first = failed.first
                which = f"sample {first.sample} of group {first.group_id}"
                self._notice(f"{which} failed: {first.detail or failed.what}")

    def show_counts(self) -> None:
        """Show how often the most frequent kinds came."""
        for line in self._progress.common_failures() if self._progress else ():
            self._notice(line)


class PlainDisplay:
    """Display for logs and pipes: a line for each phase and step, and one more every ten steps."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed_steps = 0
        self._began_s = time.monotonic()
        self._notices: set[str] = set()
        self._failures = ShownFailures(self.notice)
        self._steps = StepLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._failures.show_counts()

    def phase(self, what: str) -> None:
        self._console.print(f"[{time.monotonic() - self._began_s:4.0f} s] {what}", markup=False)

    def notice(self, what: str) -> None:
        self._console.print(f"! {what}", markup=False, highlight=False)

    def progress(self, progress: RunProgress) -> None:
        for notice in (*progress.notices, *progress.skipped.notices):
            if notice not in self._notices:
                self._notices.add(notice)
                self._console.print(f"! {notice}", markup=False, highlight=False)
        self._failures.show_new(progress)
        for line in self._steps.new(progress):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        if progress.done >= self._printed_steps + _LINE_EVERY_STEPS:
            self._printed_steps = progress.done - progress.done % _LINE_EVERY_STEPS
            self._console.print(headline(progress), markup=False, highlight=False)


class LiveDisplay:
    """Display for terminals: a panel that is drawn twice a second."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._phase = ""
        self._phase_began_s = 0.0
        self._drawn_s = 0.0
        self._failures = ShownFailures(self.notice)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, traceback)
        self._failures.show_counts()
        if kind is None:  # after an error the phase did not succeed
            self._end_phase()

    def phase(self, what: str) -> None:
        self._end_phase()
        self._phase, self._phase_began_s = what, time.monotonic()
        self._live.update(Text(f"… {what}"), refresh=True)

    def notice(self, what: str) -> None:
        self._live.console.print(Text(f"! {what}", "yellow"))

    def progress(self, progress: RunProgress) -> None:
        # The caller polls many times a second; drawing that often takes CPU from the run.
        if time.monotonic() - self._drawn_s < _REFRESH_S:
            return
        self._drawn_s = time.monotonic()
        self._failures.show_new(progress)
        self._live.update(panel(progress, self._title, self._phase), refresh=True)

    def _end_phase(self) -> None:
        if self._phase:
            took_s = time.monotonic() - self._phase_began_s
            took = (f" ({took_s:.0f} s)", "dim")
            self._live.console.print(Text.assemble(("✓", "green"), f" {self._phase}", took))


def display(console: Console, title: str) -> AbstractContextManager[Display]:
    """Return the display for a terminal, or the one for logs and pipes."""
    return LiveDisplay(console, title) if console.is_terminal else PlainDisplay(console)


def panel(progress: RunProgress, title: str, phase: str) -> RenderableType:
    """Return the progress as a panel."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column()
    table.add_row("step", _bar(progress))
    table.add_row("reward", _reward(progress))
    for name, other in progress.others.items():
        table.add_row(name, others_line(other))
    table.add_row("lag", _staleness(progress))
    table.add_row("workers", _workers(progress))
    if progress.recent_limits():
        table.add_row("ended at", limits(progress))
    explored = f", {len(progress.exploring)} explored" if progress.exploring else ""
    ready = f"{len(progress.running_groups)} running, {len(progress.ready_groups)} ready"
    table.add_row("groups", f"{ready}{explored}")
    if masked := progress.masked():
        table.add_row("masked", Text(f"{listed(masked)} (sampled, not trained)", "yellow"))
    if speed := progress.tokens_per_s():
        table.add_row("speed", f"{speed:,.0f} tokens/s")
    for notice in (*progress.notices, *progress.skipped.notices):
        table.add_row(Text("!", "yellow"), Text(notice, "yellow"))
    for line in progress.common_failures():
        table.add_row(Text("!", "yellow"), Text(line, "yellow"))
    return Group(
        Panel(table, title=title, title_align="left", border_style="blue"), Text(f"… {phase}")
    )


def headline(progress: RunProgress) -> str:
    """Return the progress as one line."""
    reward = progress.recent_reward()
    left = progress.seconds_left()
    parts = [f"{progress.done} of {progress.total} steps"]
    if reward is not None:
        parts.append(f"mean reward of ten steps {reward:.3f}")
    parts += [f"{name} {others_line(other)}" for name, other in progress.others.items()]
    if progress.last and "staleness_max" in progress.last.metrics:
        parts.append(f"staleness {progress.last.metrics['staleness_max']:.0f}")
    if progress.recent_limits():
        parts.append(f"ended at {limits(progress)}")
    if speed := progress.tokens_per_s():
        parts.append(f"{speed:,.0f} tokens/s")
    parts.append(", ".join(f"{name} {what}" for name, what in sorted(progress.doing.items())))
    if left is not None:
        parts.append(f"{_clock(left)} left")
    if masked := progress.masked():
        parts.append(f"not trained: {listed(masked)} tokens")
    return " · ".join(part for part in parts if part)


def others_line(progress: RunProgress) -> str:
    """Return where a further policy stands: steps, version, reward."""
    reward = progress.recent_reward()
    version = progress.version
    if not progress.total:
        return f"frozen, version {version}"
    shown = "" if reward is None else f", mean reward of ten steps {reward:.3f}"
    return f"{progress.done} of {progress.total} steps, version {version}{shown}"


def sparkline(values: Sequence[float]) -> str:
    """Return values as bars between 0 and the largest value, or 1 if that is larger."""
    top = max([1.0, *values])
    return "".join(_BARS[min(7, max(0, int(value / top * 8)))] for value in values)


def limits(progress: RunProgress) -> str:
    """Return the share of recent sessions that each limit ended."""
    return ", ".join(f"{limit} {share:.0%}" for limit, share in progress.recent_limits().items())


class StepLines:
    """Lines for steps that were not shown yet."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, int, int]] = set()
        self._newest: dict[str, Step | None] = {}

    def new(self, progress: RunProgress) -> list[str]:
        """Return a line for each step that the present processes completed since the last call.

        With several policies each line begins with its policy's name.
        """
        if progress.others:
            of_policies = (progress, *progress.others.values())
            return [
                f"{policy.policy}: {line}" for policy in of_policies for line in self._own(policy)
            ]
        return self._own(progress)

    def _own(self, progress: RunProgress) -> list[str]:
        name = progress.policy
        if progress.last is self._newest.get(name):  # called often; a step is one object
            return []
        self._newest[name] = progress.last
        fresh = [
            step
            for _, step in sorted(progress.steps.items())
            if step.at_ms >= progress.since_ms
            and (name, step.step, step.version) not in self._shown
        ]
        self._shown |= {(name, step.step, step.version) for step in fresh}
        return [step_line(step, progress) for step in fresh]


def step_line(step: Step, progress: RunProgress) -> str:
    """Return a step's version, reward, tokens and staleness, and what was left out of it."""
    metrics = step.metrics
    parts = [f"{step_name(step.step)}/{progress.total}", f"version {step.version}"]
    parts.append("no reward" if step.reward is None else f"reward {step.reward:.3f}")
    parts.append(f"{metrics.get('tokens_trained', 0):,.0f} tokens trained")
    if "staleness_max" in metrics:
        mean = metrics.get("staleness_mean", 0.0)
        most = metrics["staleness_max"]
        parts.append(f"staleness {mean:.1f}, at most {most:.0f}")
    if speed := progress.tokens_per_s():
        parts.append(f"{speed:,.0f} tokens/s")
    if left_out := _left_out(metrics):
        parts.append(f"left out: {', '.join(left_out)}")
    return " · ".join(parts)


def _bar(progress: RunProgress) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    left = progress.seconds_left()
    time_left = "" if left is None else f", {_clock(left)} left"
    bar = ProgressBar(total=progress.total, completed=progress.done, width=40)
    line.add_row(bar, f"{progress.done} of {progress.total}{time_left}")
    return line


def _reward(progress: RunProgress) -> Text:
    now = progress.recent_reward()
    before = progress.recent_reward(RECENT_STEPS)
    if now is None:
        return Text("none yet", "dim")
    text = Text(f"{now:.3f} ", "bold")
    if before is not None and len(progress.steps) > RECENT_STEPS:
        change = now - before
        style = "dim"
        if change > 0.005:
            style = "green"
        elif change < -0.005:
            style = "red"
        text.append(f"{change:+.3f} ", style)
    return text.append(sparkline(progress.rewards()[-_SHOWN_REWARDS:]), "blue")


def _staleness(progress: RunProgress) -> str:
    if progress.last is None:
        return "-"
    mean = progress.last.metrics.get("staleness_mean", 0.0)
    most = progress.last.metrics.get("staleness_max", 0.0)
    return f"trained tokens {mean:.1f} steps old, the oldest {most:.0f}"


def _workers(progress: RunProgress) -> str:
    shown = []
    for worker, what in sorted(progress.doing.items()):
        version = progress.serving.get(worker)
        useful = progress.useful.get(worker)
        details = [] if version is None else [f"v{version}"]
        if details and useful is not None:
            details.append(f"{useful:.0%} useful")
        shown.append(f"{worker} {what}" + (f" ({', '.join(details)})" if details else ""))
    return "   ".join(shown) or "-"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _left_out(metrics: Mapping[str, float]) -> list[str]:
    """Return tokens, groups and sessions that did not enter the loss, each with its reason."""
    parts = []
    for name, value in sorted(metrics.items()):
        family, _, reason = name.partition("/")
        match family:
            case "masked" if value > 0:
                parts.append(f"{value:,.0f} tokens {reason}")
            case "filtered" if value > 0:
                parts.append(f"{value:.0%} of the groups by the filter {reason}")
            case "dropped" if value > 0:
                parts.append(f"{value:.0f} groups dropped as {reason}")
            case "samples_failed" if value > 0:
                parts.append(f"{value:.0f} sessions failed")
    return parts
