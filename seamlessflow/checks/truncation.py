"""Check of top-p and top-k: turns they cut are trained only with an engine whose log-probs fit.

vLLM's are among the tokens kept; see `producers/rollout/roles/device.py`, which refuses them later.
"""

from collections.abc import Iterator

from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault

_TRAINED = ("train_truncated", "train_inexact")


def truncation_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each setting that trains log-probs which no trainer computes."""
    policy = config.policy
    cut = [f"policy.top_p is {policy.top_p:g}"] if policy.top_p < 1 else []
    cut += [f"policy.top_k is {policy.top_k}"] if policy.top_k > 0 else []
    if config.rollout.engine != "vllm" or not cut:
        return
    for name in _TRAINED:
        if getattr(policy, name):
            text = f"{' and '.join(cut)}, and vLLM reports log-probs among the tokens kept only"
            remedy = "set top_p: 1 and top_k: 0, rollout.engine: torch, or this to false"
            yield Fault(("policy", name), f"{text}, which no trainer computes: {remedy}")
