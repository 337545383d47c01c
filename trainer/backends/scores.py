"""Log-probs, entropies and top shares for trained tokens, without all logits in memory at once.

`linear_scores` begins with hidden states. It computes the logits part by part, and again in the
backward pass. `scores` begins with logits that a model has computed. A token's top share is the sum
of the few largest probabilities in its place. Called by `forward.py`. Dimensions: N trained tokens,
R tokens in a part, H hidden, V vocabulary, K likeliest tokens.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from seamlessflow.trainer.parallelism import LOGITS_AT_ONCE


class DividedVocabulary(Protocol):
    """An output layer whose vocabulary is divided over the ranks."""

    @property
    def size(self) -> int:
        """V, over all ranks."""
        ...

    def gathered(self, own_RV: Tensor) -> Tensor:
        """Return the logits from all ranks (R, V), given this rank's."""
        ...

    def own_part(self, all_RV: Tensor) -> Tensor:
        """Return this rank's part of a tensor over the whole vocabulary."""
        ...

    def summed(self, of_rank_NH: Tensor) -> Tensor:
        """Return the sum over the ranks."""
        ...


def scores(
    logits_NV: Tensor,
    targets_N: Tensor,
    temperatures_N: Tensor | None = None,
    entropy_gradient: bool = False,
    most: int = LOGITS_AT_ONCE,
    likeliest: int = 0,
) -> tuple[Tensor, ...]:
    """Return the log-softmax at the targets (with gradient) and the entropy (with one if asked).

    If `likeliest` is not 0, also the sum of that many largest probabilities, without gradient. All
    are over the whole vocabulary, as engines report log-probs, even with top-k or top-p. More than
    `most` logits are taken to float32 part by part, and again in the backward pass.
    """
    rows = max(1, most // logits_NV.shape[-1])
    if len(logits_NV) <= rows:
        return _scores(logits_NV, targets_N, temperatures_N, entropy_gradient, likeliest)
    scored = partial(_scores, entropy_gradient=entropy_gradient, likeliest=likeliest)
    temperatures = repeat(None) if temperatures_N is None else torch.split(temperatures_N, rows)
    parts = [
        checkpoint(scored, *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(
            torch.split(logits_NV, rows), torch.split(targets_N, rows), temperatures, strict=False
        )
    ]
    return _joined(parts)


def linear_scores(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    temperatures_N: Tensor | None = None,
    entropy_gradient: bool = False,
    most: int = LOGITS_AT_ONCE,
    divided: DividedVocabulary | None = None,
    likeliest: int = 0,
) -> tuple[Tensor, ...]:
    """Return the `scores` for hidden W^T + bias, with at most `most` of these logits in memory.

    Products are in autocast's type, or in the weight's. The weight's gradient is summed over the
    parts in float32. `divided`: the weight is this rank's part; all ranks must call it.
    """
    kind = hidden_NH.device.type
    mixed = torch.is_autocast_enabled(kind)
    compute = torch.get_autocast_dtype(kind) if mixed else weight_VH.dtype
    rows = max(1, most // (len(weight_VH) if divided is None else divided.size))
    how = entropy_gradient, compute, rows, divided
    scored: tuple[Tensor, ...] = _LinearScores.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, bias_V, targets_N, temperatures_N, how, likeliest
    )
    return scored


class _LinearScores(torch.autograd.Function):
    """Scores by an output layer, whose logits are computed again for their gradient."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, temperatures_N, ctx.how, likeliest = arguments
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, temperatures_N)
        entropy_gradient, compute, rows, divided = ctx.how
        scored = []
        with torch.autocast(hidden_NH.device.type, enabled=False):
            typed_VH = weight_VH.to(compute)
            typed_V = None if bias_V is None else bias_V.to(compute)
            for part in _parts(len(hidden_NH), rows):
                logits_RV = linear(hidden_NH[part].to(compute), typed_VH, typed_V)
                logits_RV = logits_RV if divided is None else divided.gathered(logits_RV)
                of_part = None if temperatures_N is None else temperatures_N[part]
                scored.append(_used_up(logits_RV, targets_N[part], of_part, likeliest))
        logprobs_N, entropies_N, *top_shares = _joined(scored)
        fixed = top_shares if entropy_gradient else [entropies_N, *top_shares]
        ctx.mark_non_differentiable(*fixed)
        return logprobs_N, entropies_N, *top_shares

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, by_logprob_N: Tensor, by_entropy_N: Tensor, *_: Tensor
    ) -> tuple[Any, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, temperatures_N = ctx.saved_tensors
        entropy_gradient, compute, rows, divided = ctx.how
        typed_VH = weight_VH.to(compute)
        typed_V = None if bias_V is None else bias_V.to(compute)
        of_hidden_NH = torch.empty_like(hidden_NH)
        of_weight_VH = _sum_like(weight_VH) if ctx.needs_input_grad[1] else None
        of_bias_V = _sum_like(bias_V) if ctx.needs_input_grad[2] else None
        for part in _parts(len(hidden_NH), rows):
            hidden_RH = hidden_NH[part].to(compute)
            logits_RV = linear(hidden_RH, typed_VH, typed_V)
            logits_RV = logits_RV if divided is None else divided.gathered(logits_RV)
            slopes_RV = _slopes(
                logits_RV,
                targets_N[part],
                None if temperatures_N is None else temperatures_N[part],
                by_logprob_N[part],
                by_entropy_N[part] if entropy_gradient else None,
            ).to(compute)
            slopes_RV = slopes_RV if divided is None else divided.own_part(slopes_RV)
            of_hidden_NH[part] = slopes_RV @ typed_VH
            if of_weight_VH is not None and compute == torch.float32:
                of_weight_VH.addmm_(slopes_RV.T, hidden_RH)
            elif of_weight_VH is not None:
                of_weight_VH += slopes_RV.T @ hidden_RH
            if of_bias_V is not None:
                of_bias_V += slopes_RV.sum(0)
        if divided is not None:
            of_hidden_NH = divided.summed(of_hidden_NH)
        sums = (of_weight_VH, weight_VH), (of_bias_V, bias_V)
        of_layer = (
            None if gradient is None else gradient.to(like.dtype) for gradient, like in sums
        )
        return of_hidden_NH, *of_layer, None, None, None, None


def _slopes(
    logits_RV: Tensor,
    targets_R: Tensor,
    temperatures_R: Tensor | None,
    by_logprob_R: Tensor,
    by_entropy_R: Tensor | None,
) -> Tensor:
    """Return a loss's gradient by the logits, float32, from its gradients by log-prob and entropy.

    The logits are used up: their memory takes the results. Let y = logits / temperature, p its
    softmax and t the target. The gradient of log p at t is (1 at t) - p. The entropy's gradient is
    -p (y - y's mean under p).
    """
    tempered_RV = logits_RV.float()
    if temperatures_R is not None:
        tempered_RV.div_(temperatures_R.unsqueeze(-1))
    shares_RV = tempered_RV.softmax(-1)
    slopes_RV = shares_RV
    if by_entropy_R is None:
        slopes_RV.mul_(-by_logprob_R.unsqueeze(-1))
    else:
        means_R1 = (shares_RV * tempered_RV).sum(-1, keepdim=True)
        rates_RV = tempered_RV.sub_(means_R1).mul_(by_entropy_R.unsqueeze(-1))
        slopes_RV.mul_(rates_RV.add_(by_logprob_R.unsqueeze(-1)).neg_())
    slopes_RV.scatter_add_(-1, targets_R.unsqueeze(-1), by_logprob_R.unsqueeze(-1))
    return slopes_RV if temperatures_R is None else slopes_RV.div_(temperatures_R.unsqueeze(-1))


def _used_up(
    logits_RV: Tensor, targets_R: Tensor, temperatures_R: Tensor | None, likeliest: int
) -> tuple[Tensor, ...]:
    """Return the same as `_scores`, without gradient, in the logits' memory and as much again.

    It makes few passes: each pass over so many logits takes as long as a part of their product.
    """
    logits_RV = logits_RV.float()
    if temperatures_R is not None:
        logits_RV.div_(temperatures_R.unsqueeze(-1))
    highest_R1 = logits_RV.amax(-1, keepdim=True)
    below_RV = logits_RV.sub_(highest_R1)
    of_targets_R = below_RV.gather(-1, targets_R.unsqueeze(-1)).squeeze(-1)
    weights_RV = below_RV.exp()
    sums_R = weights_RV.sum(-1)
    means_R = weights_RV.mul_(below_RV).sum(-1) / sums_R
    normalisers_R = sums_R.log()
    scored = of_targets_R - normalisers_R, normalisers_R - means_R
    return (*scored, _top_shares(below_RV, normalisers_R, likeliest)) if likeliest else scored


def _scores(
    logits_NV: Tensor,
    targets_N: Tensor,
    temperatures_N: Tensor | None,
    entropy_gradient: bool,
    likeliest: int,
) -> tuple[Tensor, ...]:
    logits_NV = logits_NV.float()
    if temperatures_N is not None:
        logits_NV = logits_NV / temperatures_N.unsqueeze(-1)
    normalisers_N = logits_NV.logsumexp(-1)
    logprobs_N = logits_NV.gather(-1, targets_N.unsqueeze(-1)).squeeze(-1) - normalisers_N
    # The entropy's gradient keeps two more tensors of this size: it is computed only for a bonus.
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        means_N = (logits_NV.softmax(-1) * logits_NV).sum(-1)
        entropies_N = normalisers_N - means_N
    scored = logprobs_N, entropies_N
    return (*scored, _top_shares(logits_NV, normalisers_N, likeliest)) if likeliest else scored


@torch.no_grad()
def _top_shares(logits_RV: Tensor, normalisers_R: Tensor, likeliest: int) -> Tensor:
    """Return the sum of the `likeliest` largest probabilities (R), or of all if there are fewer."""
    top_RK = logits_RV.topk(min(likeliest, logits_RV.shape[-1])).values
    return (top_RK - normalisers_R.unsqueeze(-1)).exp().sum(-1)


def _joined(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return each score, joined over all parts."""
    return tuple(torch.cat(scored) for scored in zip(*parts, strict=True))


def _parts(count: int, rows: int) -> Iterator[slice]:
    """Yield each part's tokens."""
    for start in range(0, count, rows):
        yield slice(start, start + rows)


def _sum_like(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor, dtype=torch.float32)
