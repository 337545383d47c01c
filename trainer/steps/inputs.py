"""Input of an optimizer step: the rules of its batch, and what the back end computes with. Pure.

The same for a step that is executed again: it depends on settings, batch and versions alone.
"""

from collections.abc import Collection, Sequence

import numpy as np

from trainer.backends.backend import StepInput
from trainer.data.advantages import ReturnRules, estimator, no_advantages
from trainer.data.batch import Batch, BatchRules
from trainer.data.chains import NOWHERE, Chain
from trainer.data.credit.batches import BATCH_ESTIMATORS
from trainer.data.packing import MicroBatch, pack
from trainer.data.units.aggregations import chain_weights
from trainer.data.units.membership import units
from trainer.settings import TrainerSection, TrainerSettings
from trainer.steps.learning_rate import learning_rate


def batch_rules(settings: TrainerSettings) -> BatchRules:
    """Return the rules by which groups become a batch."""
    trainer = settings.trainer
    filters = {str(name): action for name, action in trainer.filters.items()}
    recorded = trainer.source_prefix is not None
    stale = trainer.on_stale, settings.max_staleness
    # Some are estimated once the batch is fixed, so that equal returns tell nothing before.
    later = trainer.advantage in BATCH_ESTIMATORS
    by_name = no_advantages if later else estimator(trainer.advantage, return_rules(trainer))
    if later:
        filters.pop("zero_variance", None)
    foreign = trainer.train_foreign
    return BatchRules(by_name, filters, *stale, recorded, foreign, trainer.advantage)


def return_rules(trainer: TrainerSection) -> ReturnRules:
    """Return the settings of returns."""
    own = trainer.returns.model_dump(exclude={"entropy_scale"})
    return ReturnRules(**own, kl_penalty=trainer.kl_penalty)


def step_input(
    settings: TrainerSettings,
    batch: Batch,
    version: int,
    trained_before: int,
    remembered: Collection[int],
) -> StepInput:
    """Return the input of the step that trains `batch`, from weights of this version.

    `trained_before`: steps before it, without skipped ones. `remembered`: versions of which the
    back end has a copy.
    """
    chains, trainer = batch.chains(), settings.trainer
    if trainer.source_prefix is not None:
        # Versions of another run: no token is of weights that this trainer has or had.
        version, remembered = NOWHERE, ()
    groups_C = [place for place, one in enumerate(batch.groups) for _ in one.chains]
    batches = pack(
        chains,
        trainer.micro_batch_tokens,
        trainer.layout,
        units_C=units(trainer.loss.unit, chains, groups_C),
        weights_C=chain_weights(chains, trainer.loss),
    )
    rate = learning_rate(trainer.optimizer, trained_before, settings.run.steps)
    older = set(remembered) - {version}
    return StepInput(batches, _samples(chains, trainer, batch.step, older), version, rate)


def _samples(
    chains: Sequence[Chain], trainer: TrainerSection, step: int, remembered: set[int]
) -> list[MicroBatch]:
    """Choose chains with tokens of earlier versions whose weights are still in memory.

    Their random order depends on seed and step only, so a run can be repeated.
    """
    random = np.random.default_rng([trainer.seed, step])
    chosen, tokens = list[Chain](), 0
    for place in random.permutation(len(chains)).tolist() if remembered else ():
        versions_T = chains[place].tokens.versions_T
        if tokens + len(versions_T) <= trainer.mismatch_tokens and remembered.intersection(
            np.unique(versions_T).tolist()
        ):
            chosen.append(chains[place])
            tokens += len(versions_T)
    return pack(chosen, trainer.micro_batch_tokens, trainer.layout)
