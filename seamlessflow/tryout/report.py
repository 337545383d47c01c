"""A tryout's report: findings in plain words, and all facts as JSON. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from seamlessflow.inspection.findings import Finding, Grade
from seamlessflow.tryout.facts import CallFacts, EpisodeFacts, HistoryBreak, Tryout

_ENDED = ("complete", "truncated")
_MOST_NAMED = 8
_DETAILS = {
    "edited_history": "the environment changed its history",
    "bridge_refused": "the template writes earlier messages anew once more follow",
    "no_history": "nothing before it is in common",
}
_LOOK = "files there fill the disk in a long run; programs are a fault to report"
_OTHER_VERSION = "what the episodes show holds, and other settings may not: see the adapter's page"
_AGENTS_PAGE = "docs/agents/environments.md"


def findings(tried: Tryout) -> list[Finding]:
    """Return all findings, the package's first."""
    return [
        _package(tried),
        _tasks(tried),
        *([_warm_up(tried)] if tried.episodes else []),
        *(_episode(episode) for episode in tried.episodes),
        *_calls([call for episode in tried.episodes for call in episode.calls], tried.episodes),
        *([_histories(tried.episodes)] if tried.episodes else []),
        *([_leftovers(tried)] if tried.episodes else []),
    ]


def as_json(tried: Tryout) -> dict[str, Any]:
    """Return facts and findings."""
    return {**asdict(tried), "findings": [asdict(finding) for finding in findings(tried)]}


def _package(tried: Tryout) -> Finding:
    package = tried.package
    versions = ", ".join(f"{name} {at}" for name, at in package.versions.items())
    what = versions or f"{package.name}, an adapter of your own"
    if package.other_versions:
        text = f"{package.other_versions}; Python {package.python_version}"
        return Finding("package", Grade.WARNING, text, _OTHER_VERSION)
    return Finding("package", Grade.OK, f"{what}; Python {package.python_version}")


def _tasks(tried: Tryout) -> Finding:
    tasks = tried.tasks
    listed = f"{_counted(tasks.count, 'task')} listed in {tasks.seconds:.1f} s"
    if tasks.fault:
        remedy = "each task is a mapping with an id that no other has, and metadata of texts"
        return Finding("tasks", Grade.FAILED, f"{listed}; {tasks.fault}", remedy)
    names = ", ".join(tasks.metadata) or "none"
    drawn = "drawn_from" if tasks.drawn_from else "their ids"
    text = f"{listed}, all ids unique; metadata: {names}; told apart by {drawn}"
    return Finding("tasks", Grade.OK, text)


def _warm_up(tried: Tryout) -> Finding:
    return Finding("warm-up", Grade.OK, f"ready after {tried.warm_up_s:.1f} s")


def _episode(episode: EpisodeFacts) -> Finding:
    what = f"episode {episode.task_id}"
    calls = len(episode.calls)
    spent = f"{_counted(calls, 'call')}, {episode.seconds:.2f} s"
    if episode.status not in _ENDED:
        lines = episode.reason.strip().splitlines()
        text = f"{episode.status}, by the {episode.cause}: {lines[-1] if lines else 'no reason'}"
        remedy = "a run would try the sample again; OUT/logs/environment.log has more (--out)"
        return Finding(what, Grade.FAILED, f"{text}; {spent}", remedy)
    rewards = ", ".join(f"{name} {value:g}" for name, value in episode.rewards.items())
    more = f"; also returned: {', '.join(episode.returned)}" if episode.returned else ""
    return Finding(what, Grade.OK, f"{episode.status}, {rewards or 'no reward'}; {spent}{more}")


def _calls(calls: Sequence[CallFacts], episodes: Sequence[EpisodeFacts]) -> Iterator[Finding]:
    if not calls:
        if episodes:
            remedy = "calls go to session.base_url with session.api_key as the key"
            text = "the policy was never called"
            yield Finding("calls", Grade.WARNING, text, remedy)
        return
    paths = Counter(call.path for call in calls)
    shown = ", ".join(f"{number} {path}" for path, number in paths.items())
    names = list(dict.fromkeys(name for call in calls for name in call.parameters))
    yield Finding("calls", Grade.OK, f"{shown}; parameters: {', '.join(names) or 'none'}")
    yield from _refused(calls)
    yield from _parameters(calls)
    yield from _tools(calls, sum(episode.read_calls for episode in episodes))
    if repeated := sum(call.repeats > 0 for call in calls):
        remedy = "turn its own retries off: this project makes calls and episodes again"
        text = f"{_counted(repeated, 'call')} made again by the environment's own client"
        yield Finding("retries", Grade.WARNING, text, remedy)


def _refused(calls: Iterable[CallFacts]) -> Iterator[Finding]:
    faults = Counter((call.path, call.status, call.fault) for call in calls if call.status >= 400)
    for (path, status, fault), number in faults.items():
        text = f"{path}: {_counted(number, 'call')} with {status}: {fault}"
        remedy = f"leave it out by a setting of the environment ({_AGENTS_PAGE})"
        yield Finding("refused", Grade.FAILED, text, remedy)


def _parameters(calls: Iterable[CallFacts]) -> Iterator[Finding]:
    unread = Counter(name for call in calls for name in call.unread)
    if unread:
        text = f"without effect: {', '.join(unread)}"
        yield Finding("parameters", Grade.WARNING, text, "nothing, unless the task needs them")
    if any(call.by_schema for call in calls):
        text = "answers must obey a JSON schema"
        remedy = "rollout.engine: vllm samples such answers, and they are not trained by default"
        yield Finding("schema", Grade.WARNING, text, remedy)


def _tools(calls: Iterable[CallFacts], read: int) -> Iterator[Finding]:
    offered = list(dict.fromkeys(name for call in calls for name in call.tools))
    if not offered:
        return
    names = ", ".join(offered[:_MOST_NAMED]) + (", ..." if len(offered) > _MOST_NAMED else "")
    unwritten = next((call.unwritten for call in calls if call.called and call.unwritten), "")
    called = sum(bool(call.called) and call.status < 400 for call in calls)
    remedy = "choose a model whose template has tools, or name policy.renderer"
    if unwritten:
        text = f"{names}: the model's template writes no calls: {unwritten}"
        yield Finding("tools", Grade.FAILED, text, remedy)
    elif read < called:
        text = f"{names}: {called} calls were sampled, and {read} of them read as such"
        yield Finding("tools", Grade.FAILED, text, remedy)
    elif not called:
        yield Finding("tools", Grade.OK, f"{names}: offered, and none called")
    else:
        text = f"{names}: {_counted(read, 'call')} written by the template and read again"
        yield Finding("tools", Grade.OK, text)


def _histories(episodes: Sequence[EpisodeFacts]) -> Finding:
    counts = [episode.chains for episode in episodes]
    least = min(counts)
    most = max(counts)
    number = str(most) if least == most else f"{least} to {most}"
    chains = f"{number} {'chain' if most == 1 else 'chains'} a session"
    broken = [(episode, at) for episode in episodes for at in episode.breaks]
    if not broken:
        return Finding("history", Grade.OK, f"{chains}; each call goes on from the one before")
    shown = "; ".join(f"{episode.task_id}, {_break(at)}" for episode, at in broken[:_MOST_NAMED])
    text = f"{chains}; {_counted(len(broken), 'turn')} with another history: {shown}"
    remedy = "all is recorded, but each chain costs its prompt again in the training"
    return Finding("history", Grade.WARNING, text, remedy)


def _break(at: HistoryBreak) -> str:
    reason = _DETAILS.get(at.detail, at.detail)
    place = f", from message {at.message} ({at.role})" if at.message is not None else ""
    return f"turn {at.turn}: {reason}{place}"


def _leftovers(tried: Tryout) -> Finding:
    left = [
        *(f"behind its end: {program}" for program in tried.left),
        *(f"new in the working directory: {name}" for name in tried.written),
    ]
    programs = sum(len(episode.left.programs) for episode in tried.episodes)
    files = sum(len(episode.left.files) for episode in tried.episodes)
    text = "none"
    if programs or files:
        kept = f"{_counted(programs, 'program')} and {_counted(files, 'file')}"
        text = f"{kept} behind the episodes, which ended with its process"
    if left:
        return Finding("leftovers", Grade.WARNING, f"{text}; {'; '.join(left)}", _LOOK)
    return Finding("leftovers", Grade.OK, text)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
