"""Advantages scaled by the entropy of the policy in a session, after its estimator. Pure.

Called by `steps/annotation.py`. `_N` counts the trained tokens of a chain.
"""

from collections import defaultdict
from dataclasses import replace

from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import Chain, credited
from seamlessflow.trainer.data.credit.columns import Column


def entropy_scaled(batch: Batch, scale: float) -> Batch:
    """Return the batch with A x (1 + scale x (h - 1)) for the advantage A of each token.

    h is the mean entropy of the session's trained tokens over that of all trained tokens of the
    batch, so that the factor is 1 for the mean token. Entropy-aware advantage scaling of Kuaishou
    (KAT-Coder), which is `scale` 1. Without any entropy advantages stay as they are.
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

    groups = [replace(group, chains=tuple(map(scaled, group.chains))) for group in batch.groups]
    return replace(batch, groups=tuple(groups))
