"""View of a run's outcome for the terminal. Pure; makes `rich` objects."""

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seamlessflow.infra.printable import number_of, seconds
from seamlessflow.reports.outcome import RunOutcome
from seamlessflow.reports.reward_curve import EDGE_STEPS
from seamlessflow.schemas.tokens import shown_step
from seamlessflow.trainer.metrics.symptoms import WINDOW
from seamlessflow.trainer.metrics.unlearned import listed

FILES = {
    "summary.json": "all figures",
    "reward.png": "mean reward of each step",
    "lengths.png": "lengths of the sessions that were begun and trained",
    "timeline.png": "who did what, when",
    "trained": "every token that was trained",
    "kafka": "the log: seamlessflow show --out {out}",
}

_LIMITS = {"work": "its work alone", "latency": "its groups take so long"}
_IDLE_WITH = {
    "switching": "changes of role",
    "loading": "loading weights",
    "recomputing": "computing kept turns again",
    "under_filled": "batches that were not full",
    "waiting": "waiting",
}
"""Words for the device-time categories that are no useful work."""
_NAMED = 0.005
"""Least share in device time that is named."""


def outcome_view(outcome: RunOutcome) -> RenderableType:
    """Return the main figures, the check's result, and the run's files."""
    figures = Table.grid(padding=(0, 2))
    figures.add_column(style="dim", justify="right")
    figures.add_column()
    for name, text in _figures(outcome.summary):
        figures.add_row(name, text)
    figures.add_row("check", _check(outcome))
    parts: list[RenderableType] = [figures]
    if not outcome.summary["tokens_trained"]:
        parts.append(Text("! no token was trained: the weights are those of the start", "red"))
    steps = outcome.summary["steps"]
    if symptoms := outcome.summary.get("symptoms"):
        last = min(WINDOW, steps)
        counted = "last step" if last == 1 else f"last {last} steps"
        parts.append(Text(f"to look at, in the {counted}:", "dim"))
        parts += [Text(f"  {symptom}") for symptom in symptoms]
    if sentence := time_in_words(outcome.summary):
        parts += [Text(), Text(sentence)]
    notices = (*outcome.reasons, *outcome.skipped)
    parts += [Text(f"! {notice}", "yellow") for notice in notices]
    deviations = outcome.verification.deviations if outcome.verification else ()
    parts += [Text(f"  {deviation}", "red") for deviation in deviations]
    files = Table.grid(padding=(0, 2))
    files.add_column(overflow="fold")
    out = quote(str(outcome.out))
    made = {outcome.out / name: meaning.format(out=out) for name, meaning in FILES.items()}
    made |= dict.fromkeys(outcome.weights, "the last weights, a Hugging Face directory")
    for path, meaning in made.items():
        if path.exists():
            files.add_row(f"{path}", Text(meaning, "dim"))
    return Group(*parts, Text(), files)


def _figures(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    policies = values.get("policies") or {}
    sources = _of(values, "sources")
    rows = [
        ("reward", "" if policies else _rewards(values)),
        ("by name", _named(values.get("rewards") or {})),
        (
            "held-back tasks",
            _change(values["eval_before"], values["eval_after"], "before and after"),
        ),
        *((f"evaluated on {name}", _rounds(rounds)) for name, rounds in _of(values, "evaluations")),
        *((f"reward of {name}", _source(source, _edges(values))) for name, source in sources),
        (
            "trained",
            f"{_steps(values)} in {_number(values['train_wall_s'], 0)} s, "
            f"{number_of(values['trajectories'], 'session')}, "
            f"{number_of(values['turns'], 'turn')}, "
            f"{_tokens(values)} of {values['tokens_sampled']:,} sampled tokens{_again(values)}",
        ),
        ("not trained", _masked(values.get("tokens_masked") or {})),
        ("length", _length(values.get("lengths") or {})),
        (
            "workers",
            f"{number_of(values['role_switches'], 'change of role', 'changes of role')}, "
            f"{number_of(values['interrupted_turns_continued'], 'turn')} continued after a pause "
            "or move, "
            + ", ".join(f"{name} {share:.0%} idle" for name, share in values["idle_share"].items()),
        ),
        ("device time", _device_time(values["device_time"])),
        ("step", _step(values["step_s"], values["ideal_step_s"])),
        ("time of a step", _phases(values.get("phases") or {}, values.get("tokens_per_s"))),
        *((name, _policy(policy)) for name, policy in policies.items()),
        (
            "ended at",
            ", ".join(f"{limit} {share:.1%}" for limit, share in values["ended_at"].items()),
        ),
        ("restarts", _restarts(values["restarts"])),
        ("staleness", staleness(values["max_staleness"])),
    ]
    return [(name, text) for name, text in rows if text]


def time_in_words(values: Mapping[str, Any]) -> str:
    """Return a sentence: how near a step was to the shortest possible one, who idled, and why.

    Empty if no step ended.
    """
    step_s = values["step_s"]
    limits = values["ideal_step_s"]
    if step_s is None or not limits:
        return ""
    limit = max(limits, key=lambda name: limits[name])
    near = (
        f"A step took {seconds(step_s)}, and {seconds(limits[limit])} is the shortest possible "
        f"({_LIMITS[limit]})"
    )
    idle = ", ".join(f"{name} {share:.0%}" for name, share in values["idle_share"].items())
    shares = [(values["device_time"].get(name, 0.0), why) for name, why in _IDLE_WITH.items()]
    named = [f"{why} {share:.1%}" for share, why in sorted(shares, reverse=True) if share >= _NAMED]
    reasons = f", with {', '.join(named)}" if named else ""
    return f"{near}; idle was {idle}{reasons}."


def staleness(most: int | None) -> str:
    """Return a trained token's largest staleness, empty if none was trained."""
    return "" if most is None else f"at most {number_of(most, 'optimizer step')}"


def _restarts(counts: Mapping[str, int]) -> str:
    """Return how often processes were started again; an earlier command's restarts are unknown."""
    if not counts:
        return ""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) + " (by this command)"


def _of(values: Mapping[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    """Return one part's figures; none if an earlier release's report lacks it."""
    return (values.get(name) or {}).items()


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> str:
    """Return an evaluation set's figures in its first and last round."""
    first = rounds[0]
    last = rounds[-1]
    error = "" if last["reward_error"] is None else f" ± {last['reward_error']:.3f}"
    change = f"{_number(first['reward_mean'])} → " if len(rounds) > 1 else ""
    counted = f"first and last of {len(rounds)} rounds" if len(rounds) > 1 else "one round"
    chances = "".join(
        f", pass{sign}{k} {chance:.3f}"
        for sign, by_k in (("@", last["pass_at"]), ("^", last.get("pass_all") or {}))
        for k, chance in by_k.items()
        if k != "1"
    )
    return f"{change}{_number(last['reward_mean'])}{error} ({counted}){chances}"


def _source(source: Mapping[str, Any], what: str) -> str:
    change = _change(source["reward_first10"], source["reward_last10"], what)
    return f"{change}, {number_of(source['groups'], 'group')}"


def _policy(policy: Mapping[str, Any]) -> str:
    """Return one policy's figures, out of several."""
    parts = (
        f"{_steps(policy)}, one in {_number(policy['step_s'], 2)} s",
        f"{_count(policy['tokens_trained'])} tokens trained",
        _rewards(policy) and f"reward {_rewards(policy)}",
    )
    return ", ".join(filter(None, parts))


def _steps(values: Mapping[str, Any]) -> str:
    return number_of(values["steps"], "step")


def _rewards(values: Mapping[str, Any]) -> str:
    text = _change(values["reward_first10"], values["reward_last10"], _edges(values))
    if sampled := values.get("reward_sampled"):
        more = _change(sampled["first10"], sampled["last10"], "with groups that filters dropped")
        text = ", ".join(filter(None, (text, more)))
    return text


def _edges(values: Mapping[str, Any]) -> str:
    """Return words for the steps that are compared."""
    count = values.get("edge_steps", EDGE_STEPS)
    named = "ten" if count == EDGE_STEPS else count
    return "first and last step" if count == 1 else f"first and last {named} steps"


def _named(rewards: Mapping[str, Mapping[str, float]]) -> str:
    parts = (
        f"{name} {_number(edges.get('first10'))} → {_number(edges.get('last10'))}"
        for name, edges in rewards.items()
    )
    return ", ".join(parts)


def _device_time(shares: Mapping[str, float]) -> str:
    parts = sorted(shares.items(), key=lambda share: -share[1])
    return ", ".join(f"{name.replace('_', '-')} {part:.1%}" for name, part in parts if part)


def _step(step_s: float | None, ideal_s: Mapping[str, float]) -> str:
    if step_s is None or not ideal_s:
        return ""
    limits = " and ".join(f"{seconds:.2f} s by {name}" for name, seconds in ideal_s.items())
    return f"{step_s:.2f} s; no shorter than {limits}"


def _phases(phases: Mapping[str, float], tokens_per_s: float | None) -> str:
    """Return the mean seconds of each phase that takes at least one in a hundred."""
    all_s = sum(phases.values())
    named = (
        f"{name.removesuffix('_s')} {s:.2f} s" for name, s in phases.items() if s >= all_s / 100
    )
    parts = ", ".join(named) if all_s else ""
    rate = f"; {tokens_per_s:,.0f} trained tokens a second" if tokens_per_s is not None else ""
    return parts and parts + rate


def _length(figures: Mapping[str, Any]) -> str:
    if not figures:
        return ""
    parts = (
        f"{kind} {figures[kind]['sessions']:,} sessions of {tokens['p10']:,.0f}, "
        f"{tokens['p50']:,.0f}, {tokens['p90']:,.0f} tokens"
        for kind in ("begun", "trained")
        if (tokens := figures[kind]["tokens"])
    )
    left_out = ", ".join(f"{count:,} {fate}" for fate, count in figures["not_trained"].items())
    return f"{'; '.join(parts)} (p10, p50, p90)" + (left_out and f"; not trained: {left_out}")


def _masked(counts: Mapping[str, int]) -> str:
    return f"{listed(counts)} (sampled tokens)" if counts else ""


def _change(before: float | None, after: float | None, what: str) -> str:
    if before is None and after is None:
        return ""
    return f"{_number(before)} → {_number(after)} ({what})"


def _tokens(values: Mapping[str, Any]) -> str:
    """Return the trained tokens, each once."""
    count = values["tokens_trained"]
    return _count(None if count is None else count - values.get("tokens_reused", 0))


def _again(values: Mapping[str, Any]) -> str:
    """Return how often tokens were trained again by plan, if they were."""
    count = values.get("tokens_reused", 0)
    return f", and {count:,} again by plan" if count else ""


def _number(value: float | None, digits: int = 3) -> str:
    return "?" if value is None else f"{value:.{digits}f}"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _check(outcome: RunOutcome) -> Text:
    verification = outcome.verification
    if verification is None:
        return Text("of tokens: none, since another run sampled them", "dim")
    text = (
        f"{verification.tokens_checked:,} trained tokens held against the log: "
        f"{number_of(verification.mismatches, 'mismatch', 'mismatches')}, "
        f"{verification.trained_twice} trained twice"
    )
    if verification.steps_missing:
        numbers = ", ".join(str(shown_step(step)) for step in verification.steps_missing)
        text += f", no record of steps {numbers}"
    for wrong in (verification.wrong_marks, verification.wrong_files):
        text += f", {wrong[0]}" if wrong else ""
    return Text(text, "green" if verification.clean else "bold red")
