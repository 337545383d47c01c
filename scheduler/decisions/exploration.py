"""Exploration: tasks tried on cheap workers, and sessions sampled again on exact workers.

Sol-RL, arXiv 2604.06916, for text. A group with the purpose `explore` is sampled on workers with
the tag `cheap` and never trained. If its returns differ, its best and worst sessions are sampled
again with their seeds, on workers with the tag `exact`, and trained as a group. Pure. Called by
`pacing.py`.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from seamlessflow.infra.worker.tags import CHEAP, EXACT, WISHES
from seamlessflow.scheduler.sampling.draws import Drawn
from seamlessflow.scheduler.sampling.registry import VERSION
from seamlessflow.scheduler.sampling.settings import EXPLORE_SAMPLER, SamplerSection
from seamlessflow.scheduler.state.ledger import EVAL, EXPLORE, AdmittedGroup, Ledger
from seamlessflow.scheduler.tasks.mixture import Draws
from seamlessflow.scheduler.tasks.source import SamplingRule, TaskRow
from seamlessflow.schemas.records import SeedSession


def free_explorations(ledger: Ledger, sampler: SamplerSection, needed: int) -> int:
    """Return how many explorations may begin now.

    `needed`: groups that the remaining steps need, besides those that run or are ready. Explored
    groups that wait for a credit count towards it.
    """
    begun = ledger.explorations.values()
    waiting = sum(group.ready for group in begun)
    return max(0, sampler.under_way - len(begun)) if needed > waiting else 0


def to_sample_again(ledger: Ledger, sampler: SamplerSection, draws: Draws) -> list[Drawn]:
    """Return the tasks from the ready explorations, with the sessions to sample again."""
    explored = [(name, group) for name, group in ledger.explorations.items() if group.ready]
    return [_again(name, group, sampler, draws) for name, group in explored]


def extremes(sessions: Sequence[SeedSession], best: int, worst: int) -> list[SeedSession]:
    """Return the `best` sessions with the highest return and the `worst` with the lowest.

    They keep their order. Among equal returns, earlier samples come first, as in
    `trainer.selection`.
    """
    places = sorted(range(len(sessions)), key=lambda place: sessions[place].value)
    if len(places) > best + worst:
        places = [*places[:worst], *places[len(places) - best :]]
    return [sessions[place] for place in sorted(places)]


def placed(
    metadata: Mapping[str, str], group: AdmittedGroup, sampler: SamplerSection
) -> Mapping[str, str]:
    """Return a session's metadata, with the tag that its workers must have."""
    if group.purpose == EXPLORE:
        tag = CHEAP
    elif group.seeds or (group.purpose == EVAL and sampler.explores):
        tag = EXACT
    else:
        return metadata
    wishes = [*filter(None, [metadata.get(WISHES)]), f"{tag}!"]
    return {**metadata, WISHES: ",".join(wishes)}


def _again(name: str, group: AdmittedGroup, sampler: SamplerSection, draws: Draws) -> Drawn:
    seeds = extremes(group.explored, sampler.best, sampler.worst)
    returns = [session.value for session in group.explored]
    figures = {
        "explored": float(len(returns)),
        "lowest": min(returns),
        "highest": max(returns),
        "mean": fmean(returns),
        "best": float(sampler.best),
        "worst": float(sampler.worst),
    }
    # A task that is no longer in the file gets its group too, which then ends at its deadline.
    row = draws.find(group.task_id) or TaskRow(group.task_id, b"", {})
    return Drawn(
        row,
        SamplingRule(EXPLORE_SAMPLER, VERSION, figures),
        samples=len(seeds),
        turn_limit=group.turn_limit,
        explored=name,
        seeds=tuple(seeds),
    )
