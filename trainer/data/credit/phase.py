"""A step's second phase: the batch gets the devices' columns, and then its advantages.

Pure; called by `steps/annotation.py`. `_N` counts trained tokens in a chain, a session or a
micro-batch, `_S` all tokens in all chains.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.schemas.arrays import Float32s, Float64s
from seamlessflow.trainer.data.advantages import ReturnRules, spread, varied
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.chains import AnnotatedColumns, Chain, Column, Columns, credited
from seamlessflow.trainer.data.credit.batches import Credit, GroupedEpisodes
from seamlessflow.trainer.data.credit.values import (
    EFFICIENCY,
    EVERY_OUTPUT,
    RETURNS,
    VIABILITY,
    Lesson,
)
from seamlessflow.trainer.data.episodes import Episode, episode
from seamlessflow.trainer.data.methods import checked_advantages
from seamlessflow.trainer.data.packing import MicroBatch

Estimate = Callable[[GroupedEpisodes], list[list[Credit]]]
_FARTHEST = 2.0
"""Largest distance by which `hybrid_scaled` changes an advantage."""


def with_columns(batch: Batch, packed: Sequence[MicroBatch], annotated: AnnotatedColumns) -> Batch:
    """Return the batch with these columns; `packed`: the micro-batches that they annotate."""
    columns = iter(by_chain(batch.chains(), packed, annotated))
    return _replaced(batch, lambda chain: replace(chain, columns=next(columns)))


def with_advantages(batch: Batch, estimate: Estimate) -> Batch:
    """Return the batch with advantages, and with a critic's targets if there is one.

    Tokens that no loss will see, such as stale ones, are not part of the sessions here. Raises
    `ResultMalformed`, and the errors that `estimate` raises.
    """
    episodes = [_episodes(group) for group in batch.groups]
    checked = checked_credit(estimate(episodes), episodes)
    taught = _taught([credit for of_group in checked for credit in of_group])
    # A session's chains stand together, in the order of `Batch.chains`.
    parts = iter(
        part
        for prepared, of_group in zip(batch.groups, checked, strict=True)
        for (_, chains), credit in zip(prepared.trained_sessions(), of_group, strict=True)
        for part in _parts(chains, credit, taught)
    )

    def change(chain: Chain) -> Chain:
        advantages_N, columns = next(parts)
        return replace(credited(chain, advantages_N), columns={**chain.columns, **columns})

    return _replaced(batch, change)


def has_unscored(batch: Batch) -> bool:
    """Return whether a token to train lacks its sampler's log-prob."""
    return any(np.isnan(chain.tokens.logprobs_T).any() for chain in batch.chains())


def scored(batch: Batch) -> Batch:
    """Return the batch; tokens without a log-prob get the one under the weights before the step.

    So their ratio is 1 in the first update, and no correction changes them.
    """

    def change(chain: Chain) -> Chain:
        tokens = chain.tokens
        logprobs_T = tokens.logprobs_T.copy()
        before_N = chain.columns[Column.PROXIMAL]
        logprobs_N = logprobs_T[tokens.trained_T]
        logprobs_T[tokens.trained_T] = np.where(np.isnan(logprobs_N), before_N, logprobs_N)
        return replace(chain, tokens=replace(tokens, logprobs_T=logprobs_T))

    return _replaced(batch, change)


def with_only(batch: Batch, names: Collection[Column]) -> Batch:
    """Return the batch with only these columns."""

    def change(chain: Chain) -> Chain:
        return replace(
            chain,
            columns={name: column_N for name, column_N in chain.columns.items() if name in names},
        )

    return _replaced(batch, change)


def checked_credit(
    estimated: Sequence[Sequence[Credit]], groups: GroupedEpisodes
) -> list[list[Credit]]:
    """Return credit after a check: advantages are finite, targets finite or NaN.

    Raises `ResultMalformed`.
    """
    sizes = [len(group) for group in estimated], [len(group) for group in groups]
    if sizes[0] != sizes[1]:
        counts = f"credit of groups of {sizes[0]} sessions"
        raise ResultMalformed(counts, f"of {sizes[1]}")
    sessions = [session for group in groups for session in group]
    credits = [credit for of_group in estimated for credit in of_group]
    advantages = checked_advantages([credit.advantages_N for credit in credits], sessions)
    targets = [_checked_targets(*pair) for pair in zip(credits, sessions, strict=True)]
    if len({frozenset(target) for target in targets}) > 1:
        raise ResultMalformed("targets of some sessions", "of all or none")
    checked = iter(map(Credit, advantages, targets))
    return [[next(checked) for _ in of_group] for of_group in estimated]


def entropy_scaled(batch: Batch, scale: float) -> Batch:
    """Return the batch with A x (1 + scale x (h - 1)) for each token's advantage A.

    h is the session's mean entropy over its trained tokens, divided by the batch's. So the factor
    is 1 for a session with mean entropy. Kuaishou's entropy-aware advantage scaling (KAT-Coder) has
    `scale` 1. If all entropies are 0, advantages stay as they are.
    """
    sums: dict[str, float] = defaultdict(float)
    tokens: dict[str, int] = defaultdict(int)
    for chain in batch.chains():
        sums[chain.session_id] += float(chain.columns[Column.ENTROPY].sum(dtype="f8"))
        tokens[chain.session_id] += chain.trained()
    total = sum(sums.values())
    if not total > 0:
        return batch
    mean = total / sum(tokens.values())

    def scaled(chain: Chain) -> Chain:
        name = chain.session_id
        factor = 1 + scale * (sums[name] / tokens[name] / mean - 1)
        advantages_N = chain.tokens.advantages_T[chain.tokens.trained_T]
        return credited(chain, advantages_N.astype("f8") * factor)

    return _replaced(batch, scaled)


def hybrid_scaled(batch: Batch, scale: float, rules: ReturnRules) -> Batch:
    """Return the batch with A x (1 + scale x S) for each token's advantage A.

    S = z(H) - z(c), at least -2 and at most 2. H is the entropy where the token is predicted, c the
    summed probability of the five likeliest tokens there. z is a value's distance from the mean
    over the batch's trained tokens, in standard deviations; 0 if all values are equal. ECHO
    (arXiv 2602.02150) has `scale` 0.1.
    """
    chains = batch.chains()
    if not chains:
        return batch
    distances_N = _standard(chains, Column.ENTROPY, rules) - _standard(
        chains, Column.TOP_SHARE, rules
    )
    factors_N = 1 + scale * distances_N.clip(-_FARTHEST, _FARTHEST)
    ends_C = np.cumsum([chain.trained() for chain in chains])[:-1]
    factors = iter(np.split(factors_N, ends_C))

    def scaled(chain: Chain) -> Chain:
        advantages_N = chain.tokens.advantages_T[chain.tokens.trained_T]
        return credited(chain, advantages_N.astype("f8") * next(factors))

    return _replaced(batch, scaled)


def by_chain(
    chains: Sequence[Chain], packed: Sequence[MicroBatch], annotated: AnnotatedColumns
) -> list[Columns]:
    """Return each chain's columns, from the micro-batches' columns."""
    if not chains:
        return []
    starts_C = np.cumsum([0, *map(len, chains)])
    # Each trained token's place among all trained ones.
    places_S = np.cumsum(np.concatenate([chain.tokens.trained_T for chain in chains])) - 1
    ends_C = np.cumsum([chain.trained() for chain in chains])
    of_chains: list[dict[Column, Float32s]] = [{} for _ in chains]
    for name, arrays in annotated.items():
        flat_N = np.zeros(int(ends_C[-1]), np.float32)
        for batch, array_N in zip(packed, arrays, strict=True):
            flat_N[places_S[starts_C[batch.chains_N] + batch.places_N]] = array_N
        for columns, part_N in zip(of_chains, np.split(flat_N, ends_C[:-1]), strict=True):
            columns[name] = part_N
    return list(of_chains)


def batch_facts(batch: Batch) -> dict[str, float]:
    """Return the second phase's metrics (names in `trainer/metrics/names.py`)."""
    return {**_mask_facts(batch), **_critic_facts(batch)}


def _mask_facts(batch: Batch) -> dict[str, float]:
    """Return the metrics that masks changed after the batch was fixed; empty if they did not."""
    after = sum((Counter(group.masked_after) for group in batch.new_groups), Counter[str]())
    if not after:
        return {}
    masked = sum((group.masked() for group in batch.new_groups), Counter[str]())
    return {
        "tokens_trained": float(batch.trained()),
        "tokens_masked": float(masked.total()),
        **{f"masked/{name}": float(count) for name, count in sorted(after.items())},
    }


def _critic_facts(batch: Batch) -> dict[str, float]:
    """Return a critic's metrics, at the places before tokens where it learns."""
    facts: dict[str, float] = {}
    values_N, targets_N = _where_learned(batch, RETURNS.before)
    if len(values_N):
        variance = float(targets_N.var())
        explained = 1.0 - float((targets_N - values_N).var()) / variance if variance else 0.0
        facts |= {"value_mean": float(values_N.mean()), "explained_variance": explained}
    viable_N, _ = _where_learned(batch, VIABILITY.before)
    if len(viable_N):
        facts["viability_mean"] = float((0.5 * (1.0 + np.tanh(0.5 * viable_N))).mean())
        facts["success_share"] = _success_share(batch)
    left_N, _ = _where_learned(batch, EFFICIENCY.before)
    if len(left_N):
        facts["efficiency_mean"] = float(left_N.mean())
    return facts


def _where_learned(batch: Batch, lesson: Lesson) -> tuple[Float32s, Float32s]:
    """Return the values and the targets at the places where a lesson counts."""
    pairs = [
        (chain.columns[lesson.value][weights_N > 0], chain.columns[lesson.target][weights_N > 0])
        for chain in batch.chains()
        if (weights_N := chain.columns.get(lesson.weight)) is not None
    ]
    if not pairs:
        return np.zeros(0, np.float32), np.zeros(0, np.float32)
    values, targets = zip(*pairs, strict=True)
    return np.concatenate(values), np.concatenate(targets)


def _success_share(batch: Batch) -> float:
    """Return the share of successes among sessions whose outcome the critic learns."""
    lesson = VIABILITY.before
    outcomes = {
        chain.session_id: float(chain.columns[lesson.target][weights_N > 0].max())
        for chain in batch.chains()
        if (weights_N := chain.columns[lesson.weight]).any()
    }
    return sum(outcomes.values()) / len(outcomes)


def _standard(chains: Sequence[Chain], name: Column, rules: ReturnRules) -> Float64s:
    """Return a column over all chains, in deviations from its mean; zeros if all are equal."""
    values_N = np.concatenate([chain.columns[name] for chain in chains]).astype(np.float64)
    if not varied(values_N):
        return np.zeros_like(values_N)
    return np.asarray((values_N - values_N.mean()) / spread(values_N, rules))


def _replaced(batch: Batch, change: Callable[[Chain], Chain]) -> Batch:
    """Return the batch with each chain changed, in order."""
    groups = [replace(group, chains=tuple(map(change, group.chains))) for group in batch.groups]
    return replace(batch, groups=tuple(groups))


def _episodes(prepared: Prepared) -> list[Episode]:
    return [
        replace(
            episode(chains, session.shaped, session.turn_rewards, session.values),
            demonstration=session.source.foreign,
            intervened=session.intervened,
        )
        for session, chains in prepared.trained_sessions()
    ]


def _checked_targets(credit: Credit, session: Episode) -> dict[Column, Float64s]:
    checked: dict[Column, Float64s] = {}
    for name, target_N in credit.targets.items():
        targets_N = checked[name] = np.asarray(target_N, np.float64)
        if targets_N.shape != (len(session),):
            shape = f"targets of shape {list(targets_N.shape)}"
            raise ResultMalformed(shape, f"{[len(session)]}, one for each trained token")
        if np.isinf(targets_N).any():
            raise ResultMalformed(
                "an infinite target", "a finite one, or NaN where none is learned"
            )
    return checked


def _taught(credits: Sequence[Credit]) -> list[tuple[Lesson, int]]:
    """Return the critic's lessons, each with how many places its output learns at."""
    lessons = []
    for output in EVERY_OUTPUT:
        names = [lesson.value for lesson in output.lessons]
        places = sum(
            int(np.isfinite(credit.targets[name]).sum())
            for credit in credits
            for name in names
            if name in credit.targets
        )
        taught = credits and names[0] in credits[0].targets
        lessons += [(lesson, places) for lesson in output.lessons] if taught else []
    return lessons


def _parts(
    chains: Sequence[Chain], credit: Credit, taught: Sequence[tuple[Lesson, int]]
) -> Iterator[tuple[Float64s, Columns]]:
    """Yield, for each chain in a session, its advantages and the critic's targets there."""
    start = 0
    for chain in chains:
        part = slice(start, start + chain.trained())
        columns: dict[Column, Float32s] = {}
        for lesson, places in taught:
            targets_N = credit.targets[lesson.value][part]
            known_N = np.isfinite(targets_N)
            columns[lesson.target] = np.where(known_N, targets_N, 0).astype("f4")
            columns[lesson.weight] = (known_N / max(places, 1)).astype("f4")
        yield credit.advantages_N[part], columns
        start = part.stop
