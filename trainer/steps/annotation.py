"""A step's first phase: the devices annotate the batch, and advantages follow from that."""

from seamlessflow.trainer.backends.backend import Backend
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import OPPONENTS, Column
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS
from seamlessflow.trainer.data.credit.pairs import with_pair_losses
from seamlessflow.trainer.data.credit.phase import (
    entropy_scaled,
    has_unscored,
    hybrid_scaled,
    scored,
    with_advantages,
    with_columns,
    with_only,
)
from seamlessflow.trainer.data.credit.values import OUTPUTS, lesson_columns, value_columns
from seamlessflow.trainer.data.methods import method
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.data.turn_masks import masked_batch
from seamlessflow.trainer.settings import TrainerSection
from seamlessflow.trainer.steps.inputs import return_rules

ESTIMATED = frozenset({Column.PAIR_LOSS}).union(*map(lesson_columns, OUTPUTS.values()))
"""Columns that the trainer computes from other columns."""


def annotated(settings: TrainerSection, batch: Batch, backend: Backend) -> Batch:
    """Return the batch with all that its loss needs.

    The result depends only on settings, batch and weights, so a step that is executed again has the
    same result. Raises `MethodFailed`, and the back end's errors.
    """
    return estimated(settings, computed(settings, batch, backend))


def computed(settings: TrainerSection, batch: Batch, backend: Backend) -> Batch:
    """Return the batch with the columns that devices compute. Raises the back end's errors.

    A token without its sampler's log-prob gets its log-prob under the weights before the step.
    """
    names = needed(settings)
    unscored = has_unscored(batch)
    if unscored:
        names = tuple(sorted({*names, Column.PROXIMAL}))
    if not names:
        return batch
    packed = pack(batch.chains(), settings.micro_batch_tokens, settings.layout)
    batch = with_columns(batch, packed, backend.annotate(packed, names))
    return scored(batch) if unscored else batch


def estimated(settings: TrainerSection, batch: Batch) -> Batch:
    """Return the batch with the advantages that follow from its columns. Raises `MethodFailed`.

    Masks take their tokens out of the loss first, so advantages over a batch do not see them.

    Then columns that the loss does not need are left out: they would go to every rank. With one
    update a step, these include the log-probs under the policy before the step. They equal the
    trained ones, except for rounding in other micro-batches.
    """
    batch = masked_batch(batch, settings.masks)
    rules = return_rules(settings, batch.step)
    if (estimator := BATCH_ESTIMATORS.get(settings.advantage)) is not None:
        with method("advantage estimator", settings.advantage):
            batch = with_advantages(batch, lambda episodes: estimator.estimate(episodes, rules))
    if scale := settings.returns.entropy_scale:
        batch = entropy_scaled(batch, scale)
    if scale := settings.returns.hybrid_scale:
        batch = hybrid_scaled(batch, scale, rules)
    if settings.loss.of_pairs:
        batch = with_pair_losses(batch, settings.loss.chosen_surrogate, settings.pairs)
    return with_only(batch, _of_loss(settings))


def needed(settings: TrainerSection) -> tuple[Column, ...]:
    """Return the columns that the devices have to compute."""
    columns = _of_loss(settings) - ESTIMATED
    if (estimator := BATCH_ESTIMATORS.get(settings.advantage)) is not None:
        columns |= estimator.columns
    if settings.kl_penalty:
        columns |= {Column.PROXIMAL, Column.REFERENCE}
    if settings.returns.entropy_scale or settings.masks:
        columns |= {Column.ENTROPY}
    if settings.returns.hybrid_scale:
        columns |= {Column.ENTROPY, Column.TOP_SHARE}
    if settings.loss.of_pairs:
        columns |= {Column.PROXIMAL, Column.REFERENCE, *OPPONENTS[: settings.opponents]}
    return tuple(sorted(columns))


def _of_loss(settings: TrainerSection) -> set[Column]:
    """Return the columns that the policy's loss and a critic's loss need."""
    outputs = OUTPUTS[settings.advantage] if settings.critic_used else ()
    columns = {*value_columns(outputs), *lesson_columns(outputs)}
    if settings.loss.kl:
        columns |= {Column.REFERENCE}
    if settings.loss.of_pairs:
        columns |= {Column.PAIR_LOSS}
    # With one update a step, the trained weights are those before the step.
    if settings.updates > 1 and settings.loss.chosen_correction != "none":
        columns |= {Column.PROXIMAL}
    return columns
