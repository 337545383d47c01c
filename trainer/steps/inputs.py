"""An optimizer step's input: its batch's rules, its rate, and the back end's input.

A step has one update for each part of its batch, `trainer.epochs` times. Pure, and the same for a
step that is executed again: the input depends only on settings, batch and versions.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from seamlessflow.infra.user_functions import is_user_function
from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.data.advantages import ESTIMATORS, ReturnRules, estimator, no_advantages
from seamlessflow.trainer.data.aggregations import chain_weights
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import NOWHERE, Chain, Column
from seamlessflow.trainer.data.credit.overlong import OverlongRules
from seamlessflow.trainer.data.credit.values import EVERY_OUTPUT
from seamlessflow.trainer.data.packing import Layout, MicroBatch, pack
from seamlessflow.trainer.data.pairs import PairRules
from seamlessflow.trainer.data.rules import BatchRules, ReuseRules
from seamlessflow.trainer.data.selection import SelectionRules
from seamlessflow.trainer.data.units import units
from seamlessflow.trainer.settings import OptimizerSection, TrainerSection, TrainerSettings

_SUMS = ("mismatch_tokens", "modelled_s")
"""Metrics that are sums over a step's updates; all others are means."""


@dataclass(frozen=True, slots=True)
class Update:
    """One update of a step."""

    epoch: int
    chains: Sequence[Chain]
    input: StepInput


def laid_out(settings: TrainerSettings, layout: Layout) -> TrainerSettings:
    """Return the settings with this layout instead of their own."""
    trainer = settings.trainer.model_copy(update={"layout": layout})
    return settings.model_copy(update={"trainer": trainer})


def batch_rules(settings: TrainerSettings) -> BatchRules:
    """Return the rules by which groups become a batch."""
    trainer = settings.trainer
    filters = {str(name): action for name, action in trainer.filters.items()}
    if is_user_function(trainer.advantage) or trainer.advantage in ESTIMATORS:
        by_name = estimator(trainer.advantage, return_rules(trainer), trainer.functions)
    else:
        # Estimated once the batch is fixed: before, equal returns say nothing about a group.
        by_name = no_advantages
        filters.pop("zero_variance", None)
    if trainer.loss.of_pairs:
        by_name = no_advantages
    return BatchRules(
        by_name,
        filters,
        trainer.on_stale,
        settings.max_staleness,
        recorded=trainer.source_prefix is not None,
        train_foreign=trainer.train_foreign,
        advantage=trainer.advantage,
        overlong=OverlongRules(**trainer.overlong.model_dump()),
        reuse=ReuseRules(**trainer.reuse.model_dump(), seed=trainer.seed),
        rewards=trainer.reward_weights,
        regularised=trainer.loss.regularised,
        functions=trainer.functions,
        selection=selection_rules(trainer),
        pairs=PairRules(
            name=trainer.pairs.name if trainer.loss.of_pairs else "", functions=trainer.functions
        ),
        returns=return_rules(trainer),
        pools={name: pool.max_staleness for name, pool in trainer.replay.pools.items()},
        chaining=trainer.chains,
    )


def selection_rules(trainer: TrainerSection) -> SelectionRules:
    """Return the rules that select a group's sessions."""
    values = {**trainer.selection.model_dump(), "name": trainer.selection.name or ""}
    return SelectionRules(**values, seed=trainer.seed, functions=trainer.functions)


def return_rules(trainer: TrainerSection, step: int = 0) -> ReturnRules:
    """Return the rules for returns, as they are in `step`."""
    values = trainer.returns.model_dump(exclude={"entropy_scale", "hybrid_scale"})
    return ReturnRules(
        **values,
        kl_penalty=trainer.kl_penalty,
        rewards=trainer.reward_weights,
        spread_over=trainer.spread_over,
        passes=trainer.critic.passes,
        warming=step < trainer.critic.warmup_steps,
    )


def step_updates(
    settings: TrainerSettings,
    batch: Batch,
    version: int,
    trained_before: int,
    remembered: Collection[int],
) -> list[Update]:
    """Return the updates with which a step trains `batch`, from the weights `version`.

    `trained_before`: earlier steps, without skipped ones. `remembered`: versions that the back end
    has copied.
    """
    updates: list[Update] = []
    for epoch, part in _parts(settings.trainer, batch):
        # Engines are measured against the weights before the step, so only in its first update.
        measured = NOWHERE if updates else version
        inputs = step_input(settings, part, measured, trained_before, () if updates else remembered)
        updates.append(Update(epoch, part.chains(), inputs))
    return updates


def of_step(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return a step's metrics, from its updates' metrics."""
    if len(updates) == 1:
        return dict(updates[0])
    metrics: dict[str, float] = {"updates": len(updates)}
    for name in dict.fromkeys(name for update in updates for name in update):
        values = [update[name] for update in updates if name in update]
        metrics[name] = sum(values) if name in _SUMS else fmean(values)
    return metrics


def step_input(
    settings: TrainerSettings,
    batch: Batch,
    version: int,
    trained_before: int,
    remembered: Collection[int],
) -> StepInput:
    """Return the input for the update that trains `batch`; see `step_updates`."""
    chains = batch.chains()
    trainer = settings.trainer
    if trainer.source_prefix is not None:
        # Versions from another run: this trainer never had the weights that sampled the tokens.
        version = NOWHERE
        remembered = ()
    groups_C = [place for place, group in enumerate(batch.groups) for _ in group.chains]
    batches = pack(
        chains,
        trainer.micro_batch_tokens,
        trainer.layout,
        units_C=units(trainer.loss.unit, chains, groups_C),
        weights_C=chain_weights(chains, trainer.loss, batch.counted(), trainer.chains),
        # Memory for a chain of that length is needed anyway.
        longest=settings.policy.max_context,
    )
    rate = learning_rate(trainer.optimizer, trained_before, settings.run.steps)
    older = set(remembered) - {version}
    return StepInput(batches, _samples(chains, trainer, batch.step, older), version, rate)


def learning_rate(settings: OptimizerSection, step: int, steps: int) -> float:
    """Return the learning rate for `step` (from 0), in a run with so many `steps`.

    It rises linearly to `lr`, then falls by the schedule to `min_lr`. It reaches that only after
    the last step, since a rate of 0 would waste that step's sessions.
    """
    if step < settings.warmup_steps:
        return settings.lr * (step + 1) / settings.warmup_steps
    left = max(steps - settings.warmup_steps, 1)
    done = min((step - settings.warmup_steps) / left, 1.0)
    match settings.schedule:
        case "constant":
            return settings.lr
        case "linear":
            share = 1 - done
        case "cosine":
            share = (1 + math.cos(math.pi * done)) / 2
    return settings.min_lr + (settings.lr - settings.min_lr) * share


def _parts(trainer: TrainerSection, batch: Batch) -> Iterator[tuple[int, Batch]]:
    """Yield each update's epoch and groups; every epoch has its own order.

    The order depends only on seed and step, so a run can be repeated. A part without a trained
    token makes no update.
    """
    groups = [group for group in batch.groups if group.chains or group.counted]
    if trainer.mini_batches == 1 or not batch.trained():
        yield from ((epoch, batch) for epoch in range(trainer.epochs))
        return
    for epoch in range(trainer.epochs):
        order = np.random.default_rng([trainer.seed, batch.step, epoch]).permutation(len(groups))
        for part in np.array_split(order, min(trainer.mini_batches, len(groups))):
            chosen = tuple(groups[place] for place in sorted(part.tolist()))
            if any(group.chains for group in chosen):
                yield epoch, _learning(replace(batch, groups=chosen))


def _learning(part: Batch) -> Batch:
    """Return a batch's part, rescaled so that the weights for each critic output sum to 1 again."""
    for output in EVERY_OUTPUT:
        names = [lesson.weight for lesson in output.lessons]
        total = sum(
            float(chain.columns[name].sum(dtype=np.float64))
            for chain in part.chains()
            for name in names
            if name in chain.columns
        )
        if total:
            part = _scaled(part, names, np.float32(1 / total))
    return part


def _scaled(part: Batch, names: Collection[Column], factor: np.float32) -> Batch:
    """Return a batch's part with these columns multiplied by a factor."""

    def change(chain: Chain) -> Chain:
        scaled = {name: chain.columns[name] * factor for name in names if name in chain.columns}
        return replace(chain, columns={**chain.columns, **scaled})

    groups = tuple(replace(group, chains=tuple(map(change, group.chains))) for group in part.groups)
    return replace(part, groups=groups)


def _samples(
    chains: Sequence[Chain], trainer: TrainerSection, step: int, remembered: set[int]
) -> list[MicroBatch]:
    """Choose chains with tokens from earlier versions whose weights are still in memory.

    Their random order depends only on seed and step, so a run can be repeated.
    """
    random = np.random.default_rng([trainer.seed, step])
    chosen = list[Chain]()
    tokens = 0
    for place in random.permutation(len(chains)).tolist() if remembered else ():
        versions_T = chains[place].tokens.versions_T
        if tokens + len(versions_T) <= trainer.mismatch_tokens and remembered.intersection(
            np.unique(versions_T).tolist()
        ):
            chosen.append(chains[place])
            tokens += len(versions_T)
    return pack(chosen, trainer.micro_batch_tokens, trainer.layout)
