"""Pair losses: computed from two sessions, then divided into an advantage and a loss per token.

A loss is a function of both sessions' log-probs, under the policy before the step. A step has one
update, so these are the log-probs that are trained. Each token's gradient is therefore known before
the step: the loss's slope, times the token's share in the margin. So a pair's sessions need not be
in one micro-batch, nor on one rank. Registered by name (`PAIR_LOSSES`, the setting
`trainer.loss.surrogate`); `steps/annotation.py` applies them. Pure. `_P` counts pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain as joined

import numpy as np

from seamlessflow.schemas.arrays import Float64s
from seamlessflow.trainer.credit import PairsSection
from seamlessflow.trainer.data.advantages import EQUAL
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import OPPONENTS, Chain, Column, credited
from seamlessflow.trainer.data.pairs import SessionPair

Differences = Mapping[Column, Float64s]
"""By model, each pair's difference (P): the chosen session's log-prob minus the rejected one's."""


@dataclass(frozen=True, slots=True)
class PairLosses:
    """Each pair's margin, its loss, and the loss's derivative by the margin."""

    margins_P: Float64s
    losses_P: Float64s
    slopes_P: Float64s


@dataclass(frozen=True, slots=True)
class PairLoss:
    """A pair loss."""

    losses: Callable[[Differences, PairsSection], PairLosses]
    by_token: bool
    """True if a session's log-prob is the mean over its trained tokens, not their sum."""


@dataclass(slots=True)
class _Session:
    """A session's columns, summed over its trained tokens, and what its pairs add up to."""

    tokens: int = 0
    sums: defaultdict[Column, float] = field(default_factory=lambda: defaultdict(float))
    slope: float = 0.0
    """The derivatives of its pairs' losses by one token's log-prob, summed."""
    loss: float = 0.0
    """Half of its pairs' losses, summed."""


def pairs_squared(differences: Differences, settings: PairsSection) -> PairLosses:
    """Return (h - 1 / (2 eta))^2, h = D(policy) - r D(reference) - (1 - r) sum_j w_j D(past j).

    Multiplayer Nash preference optimization, arXiv 2509.23102. D is the difference between the
    sessions' mean log-probs per token, r is `reference_share`. w weighs the opponents. With r = 1
    it is IPO's squared loss to one reference, arXiv 2310.12036.
    """
    share = settings.reference_share
    margins_P = differences[Column.PROXIMAL] - share * differences[Column.REFERENCE]
    if share < 1:
        for name, weight in zip(OPPONENTS, opponent_weights(settings), strict=False):
            margins_P = margins_P - (1 - share) * weight * differences[name]
    distances_P = margins_P - 1 / (2 * settings.eta)
    return PairLosses(margins_P, distances_P**2, 2 * distances_P)


def pairs_logistic(differences: Differences, settings: PairsSection) -> PairLosses:
    """Return -log sigmoid(beta h), h = D(policy) - D(reference).

    Direct preference optimization, arXiv 2305.18290, equation 7. D is the difference between the
    sessions' log-probs, each summed over its tokens.
    """
    margins_P = differences[Column.PROXIMAL] - differences[Column.REFERENCE]
    scaled_P = settings.beta * margins_P
    losses_P = np.logaddexp(0.0, -scaled_P)
    slopes_P = -settings.beta * np.exp(-np.logaddexp(0.0, scaled_P))
    return PairLosses(margins_P, losses_P, slopes_P)


PAIR_LOSSES: Mapping[str, PairLoss] = {
    "pairs_squared": PairLoss(pairs_squared, by_token=True),
    "pairs_logistic": PairLoss(pairs_logistic, by_token=False),
}


def opponent_weights(settings: PairsSection) -> list[float]:
    """Return each opponent's weight, the newest first; they sum to 1."""
    section = settings.opponents
    weights = section.weights or (1.0,) * section.most
    return [weight / sum(weights) for weight in weights]


def with_pair_losses(batch: Batch, name: str, settings: PairsSection) -> Batch:
    """Return the batch with its pairs' mean loss, divided among their tokens.

    A token's advantage is minus the derivative of that mean by the token's log-prob. Its column
    PAIR_LOSS is its part in the mean. Both are multiplied by the step's token count, since a step's
    loss is a mean over its tokens. A pair leaves if one of its sessions has lost all tokens.
    """
    if not batch.chains():
        return batch
    form = PAIR_LOSSES[name]
    sessions = _sums(batch.chains())
    groups = [
        replace(
            group, pairs=tuple(pair for pair in group.pairs if {*pair.names} <= sessions.keys())
        )
        for group in batch.groups
    ]
    pairs = [pair for group in groups for pair in group.pairs]
    losses = form.losses(_differences(pairs, sessions, form.by_token), settings)
    _spread(pairs, losses, sessions, form.by_token)
    tokens = sum(chain.trained() for chain in joined(batch.chains(), batch.counted()))
    scale = tokens / max(1, len(pairs))
    margins = iter(losses.margins_P.tolist())
    return replace(
        batch,
        groups=tuple(
            replace(
                group,
                chains=tuple(_credited(chain, sessions, scale) for chain in group.chains),
                pairs=tuple(replace(pair, margin=next(margins)) for pair in group.pairs),
            )
            for group in groups
        ),
    )


def pair_facts(batch: Batch) -> dict[str, float]:
    """Return the metrics of a batch's pairs; empty without any."""
    margins = [
        pair.margin for group in batch.groups for pair in group.pairs if pair.margin is not None
    ]
    if not margins:
        return {}
    return {
        "pairs": float(len(margins)),
        "pair_accuracy": sum(margin > EQUAL for margin in margins) / len(margins),
        "pair_margin": sum(margins) / len(margins),
    }


def _sums(chains: Sequence[Chain]) -> dict[str, _Session]:
    sessions: defaultdict[str, _Session] = defaultdict(_Session)
    for chain in chains:
        session = sessions[chain.session_id]
        session.tokens += chain.trained()
        for name, column_N in chain.columns.items():
            session.sums[name] += float(column_N.sum(dtype=np.float64))
    return dict(sessions)


def _differences(
    pairs: Sequence[SessionPair], sessions: Mapping[str, _Session], by_token: bool
) -> Differences:
    def difference(pair: SessionPair, name: Column) -> float:
        better, worse = (
            sessions[session].sums[name] * _share(sessions[session], by_token)
            for session in pair.names
        )
        return better - worse

    computed = {name for session in sessions.values() for name in session.sums}
    return {
        name: np.array([difference(pair, name) for pair in pairs], np.float64) for name in computed
    }


def _spread(
    pairs: Sequence[SessionPair],
    losses: PairLosses,
    sessions: Mapping[str, _Session],
    by_token: bool,
) -> None:
    """Add each pair's slope and loss to both its sessions."""
    for pair, loss, slope in zip(
        pairs, losses.losses_P.tolist(), losses.slopes_P.tolist(), strict=True
    ):
        for name, sign in zip(pair.names, (1.0, -1.0), strict=True):
            session = sessions[name]
            session.slope += sign * slope * _share(session, by_token)
            session.loss += loss / 2


def _share(session: _Session, by_token: bool) -> float:
    """Return a token's part in its session's log-prob."""
    return 1 / session.tokens if by_token else 1.0


def _credited(chain: Chain, sessions: Mapping[str, _Session], scale: float) -> Chain:
    session = sessions[chain.session_id]
    part = np.full(chain.trained(), scale * session.loss / session.tokens, np.float32)
    columns = {**chain.columns, Column.PAIR_LOSS: part}
    return replace(credited(chain, -scale * session.slope), columns=columns)
