"""A step in float64, chain by chain: the formula's loss, and its gradient by the parameters."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.loss import LossSection
from tests.properties.training.loss_formulas import FormulaToken, Frozen, objective, slopes

Gradient = dict[str, Tensor]


class ExactStep:
    """Chains with their log-probs and entropies under a model in float64."""

    def __init__(self, model: PreTrainedModel, chains: Sequence[Chain]) -> None:
        self._parameters = dict(model.named_parameters())
        self._chains = chains
        scored = [_scored(model, chain) for chain in chains]
        self.logprobs_N, self.entropies_N = (
            torch.cat(column) for column in zip(*scored, strict=True)
        )

    def loss(self, settings: LossSection, several: bool) -> tuple[float, Gradient]:
        """Return the value and the gradient of the formula; see `Frozen`."""
        frozen = Frozen(self._tokens(several), self.logprobs_N.tolist(), settings)
        entropies = self.entropies_N.tolist()
        gradients = torch.autograd.grad(
            (self.logprobs_N, self.entropies_N),
            tuple(self._parameters.values()),
            slopes(frozen, entropies),
            retain_graph=True,
        )
        value = float(objective(frozen, frozen.frozen, entropies).real)
        return value, dict(zip(self._parameters, gradients, strict=True))

    def _tokens(self, several: bool) -> list[FormulaToken]:
        sessions: dict[str, int] = {}
        turns: dict[tuple[str, int], int] = {}
        formula_tokens = []
        for chain in self._chains:
            tokens, name = chain.tokens, chain.session_id
            columns = chain.columns[Column.REFERENCE], chain.columns[Column.PROXIMAL]
            places = np.flatnonzero(tokens.trained_T).tolist()
            rows = zip(places, *(column.tolist() for column in columns), strict=True)
            for place, reference, before in rows:
                turn = name, int(tokens.turns_T[place])
                formula_tokens.append(
                    FormulaToken(
                        sessions.setdefault(name, len(sessions)),
                        turns.setdefault(turn, len(turns)),
                        float(tokens.logprobs_T[place]),
                        float(tokens.advantages_T[place]),
                        reference,
                        before if several else None,
                    )
                )
        return formula_tokens


def _scored(model: PreTrainedModel, chain: Chain) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies of the trained tokens of a chain, at their temperatures."""
    tokens = chain.tokens
    ids_T = torch.from_numpy(tokens.ids_T.astype(np.int64))
    places_N = torch.from_numpy(np.flatnonzero(tokens.trained_T))
    temperatures_N = torch.from_numpy(tokens.temperatures_T)[places_N].double()
    logits_TV = model(input_ids=ids_T[None], use_cache=False).logits[0]
    table_NV = (logits_TV[places_N - 1] / temperatures_N[:, None]).log_softmax(-1)
    logprobs_N = table_NV.gather(-1, ids_T[places_N][:, None])[:, 0]
    return logprobs_N, -(table_NV.exp() * table_NV).sum(-1)


def distance(gradient: Gradient, other: Gradient) -> float:
    """Return how far one gradient is from another, as a share of the other's length."""
    assert gradient.keys() == other.keys()
    squares = sum(
        float((gradient[name].double() - other[name].double()).square().sum()) for name in gradient
    )
    length = sum(float(value.double().square().sum()) for value in other.values())
    return float(np.sqrt(squares / length))
