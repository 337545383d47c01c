"""Checks of what steps trained, as `control` has it. Pure; yields what is wrong."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from seamlessflow.schemas import records as r
from tests.faults.rules.settings import KEEP, USES

_PASSES = 1.0


def repeated_faults(commits: Iterable[r.StepCommitted]) -> Iterator[str]:
    """Yield steps that were executed again with other groups, sessions, or stored sessions."""
    first: dict[int, r.StepCommitted] = {}
    for commit in commits:
        earlier = first.setdefault(commit.step, commit)
        for part in ("groups", "trained_tokens"):
            if getattr(commit, part) != getattr(earlier, part):
                yield f"step {commit.step} was executed again with other {part}"


def rescue_faults(
    commits: Iterable[r.StepCommitted],
    ready: Mapping[str, r.GroupReady],
    tasks: Mapping[str, str],
) -> Iterator[str]:
    """Yield exchanges that are none by the rule; `ready` and `tasks` have those of each group."""
    trained: Counter[str] = Counter()
    for commit in _once(commits):
        for group in commit.groups:
            returns = ready[group.group_id].returns
            for each in group.replaced:
                if max(returns) >= _PASSES or each.session_id not in ready[group.group_id].sessions:
                    yield f"{group.group_id} of returns {returns} was rescued by {each.by}"
                source = each.by.rpartition(".")[0].rpartition(".")[0]
                if tasks.get(source) != tasks[group.group_id]:
                    yield f"{group.group_id} was rescued by {each.by}, of another task"
                if each.uses != trained[each.by]:
                    yield f"{each.by} was trained {trained[each.by]} times, not {each.uses}"
            if len(group.replaced) > 1:
                yield f"{group.group_id} was rescued {len(group.replaced)} times"
        trained.update(commit.trained_tokens.keys())
    for name, count in trained.items():
        if count > USES:
            yield f"{name} was trained {count} times"


def selection_faults(
    commits: Iterable[r.StepCommitted], ready: Mapping[str, r.GroupReady]
) -> Iterator[str]:
    """Yield groups of which other sessions were trained than a balanced selection has."""
    for commit in _once(commits):
        for group in commit.groups:
            returns = _returns(group, ready[group.group_id])
            trained = [returns[name] for name in returns if name in commit.trained_tokens]
            if len(trained) > KEEP:
                yield f"step {commit.step}: {len(trained)} sessions of {group.group_id} are trained"
            passed = [value >= _PASSES for value in returns.values()]
            both = len(trained) == KEEP and len(set(passed)) == 2
            if both and len({value >= _PASSES for value in trained}) != 2:
                yield f"step {commit.step}: {group.group_id} is trained with one outcome"


def _returns(group: r.StepGroup, ready: r.GroupReady) -> Mapping[str, float]:
    returns = dict(zip(ready.sessions, ready.returns, strict=True))
    for each in group.replaced:
        del returns[each.session_id]
        returns[each.by] = _PASSES
    return returns


def _once(commits: Iterable[r.StepCommitted]) -> Sequence[r.StepCommitted]:
    by_step: dict[int, list[r.StepCommitted]] = defaultdict(list)
    for commit in commits:
        by_step[commit.step].append(commit)
    return [by_step[step][0] for step in sorted(by_step)]
