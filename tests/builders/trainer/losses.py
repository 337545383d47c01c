"""Tokens and settings of losses: made up, and every combination that settings accept."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from seamlessflow.trainer.backends.losses.corrections import CORRECTIONS
from seamlessflow.trainer.backends.losses.loss import old_policy
from seamlessflow.trainer.backends.losses.surrogates import SURROGATES
from seamlessflow.trainer.backends.losses.tokens import LossTokens
from seamlessflow.trainer.data.aggregations import AGGREGATIONS
from seamlessflow.trainer.loss import OF_PAIRS, LossSection

WITHOUT_RATIO = ("cloning", *OF_PAIRS)
BOUNDS = {"clip_low": 0.25, "clip_high": 0.3, "cap": 1.5}
VARIANTS: dict[str, Sequence[dict[str, object]]] = {
    "ppo_clip": ({}, {"dual_clip": 2.0}),
    "sapo": ({"gate_positive": 1.5, "gate_negative": 3.0},),
    "dppo": (
        {"divergence": "tv", "divergence_bound": 0.015},
        {"divergence": "kl", "divergence_bound": 0.004},
    ),
    "icepop": ({"floor": 0.8},),
    "gspo": ({"ratio_level": "turn"}, {"ratio_level": "session"}),
    "tis": tuple({"correction_level": level} for level in ("token", "turn", "session")),
    "constant": ({"constant_length": 7},),
}

MASKED: Sequence[dict[str, object]] = (
    {},
    {"geometric_mean": {"low": 0.75, "high": 1.2}},
    {"outlier": {"low": 0.6, "high": 1.7, "level": "token"}},
    {"off_policy": {"most": 0.1, "level": "turn"}},
    {"outlier": {"high": 3.5}, "off_policy": {"most": 0.2}},
    {"outlier": {"low": 0.4, "level": "turn"}, "geometric_mean": {"low": 0.7, "level": "turn"}},
)
"""Masks, of which each loss of a set has other ones."""


def combinations() -> list[LossSection]:
    """Return every combination of the registries that settings accept, with each level."""
    sections = []
    for names in product(SURROGATES, CORRECTIONS, AGGREGATIONS):
        choices = dict(zip(("surrogate", "correction", "aggregation"), names, strict=True))
        for several in product(*(VARIANTS.get(name, ({},)) for name in names)):
            values: dict[str, object] = {**BOUNDS, **choices, "entropy": 0.01}
            for more in several:
                values |= more
            try:
                sections.append(LossSection.model_validate(values))
            except ValidationError:
                alone = names[0] in OF_PAIRS and names[2] != "token_mean"
                assert alone or (names[0] in WITHOUT_RATIO and names[1] != "none"), values
    return sections


def with_regularisers(settings: LossSection) -> list[tuple[LossSection, bool]]:
    """Return a loss with and without each regulariser, for steps of one update and of several.

    Several (True) differ from one only where a correction makes the ratio one to the weights before
    the step.
    """
    cases = []
    corrected = settings.chosen_correction != "none"
    divergences = ((0, "k3", False), (0.3, "k2", False), (0.2, "k3", False), (0.2, "k3", True))
    for place, (entropy, (kl, estimator, weighted)) in enumerate(product((0.0, 0.05), divergences)):
        masks = {} if settings.surrogate in WITHOUT_RATIO else MASKED[place % len(MASKED)]
        changes = {"entropy": entropy, "kl": kl, "kl_estimator": estimator, "masks": masks}
        changes["kl_weighted"] = weighted
        section = LossSection.model_validate(settings.model_dump(exclude_unset=True) | changes)
        cases += [(section, several) for several in ((False, True) if corrected else (False,))]
    return cases


def named(settings: LossSection) -> str:
    """Return a name for a case of a test."""
    levels = (settings.ratio_level, settings.correction_level, settings.dual_clip)
    bounds = (settings.divergence if settings.surrogate == "dppo" else None, settings.floor)
    choices = (settings.surrogate, settings.correction, settings.aggregation, *levels, *bounds)
    return "-".join(str(choice) for choice in choices if choice is not None)


def loss_tokens(
    logprobs_N: Tensor,
    engine_N: Tensor,
    advantages_N: Tensor,
    settings: LossSection,
    turns: Sequence[int] = (),
    sessions: Sequence[int] = (),
    entropies_N: Tensor | None = None,
    reference_N: Tensor | None = None,
    proximal_N: Tensor | None = None,
) -> LossTokens:
    """Return tokens; by default each is a turn and a session of its own, with no entropy."""
    alone = range(len(logprobs_N))
    return LossTokens(
        logprobs_N=logprobs_N,
        engine_N=engine_N,
        old_N=old_policy(logprobs_N, engine_N, settings, proximal_N),
        advantages_N=advantages_N,
        entropies_N=torch.zeros_like(engine_N) if entropies_N is None else entropies_N,
        reference_N=reference_N,
        turns_N=np.array(turns or alone, np.int32),
        sessions_N=np.array(sessions or alone, np.int32),
    )
