"""Check of settings that are right in themselves, and of no use or not possible with others."""

from collections.abc import Iterator

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.faults import Fault
from seamlessflow.trainer.unread import unread

_TRAINED = ("train_truncated", "train_inexact")


def truncation_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each setting that trains log-probs which no trainer computes.

    Turns that top-p or top-k cut are trained only with an engine whose log-probs fit. vLLM's are
    among the tokens kept: `producers/rollout/roles/device.py` would refuse them later.
    """
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


def update_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for a mode that would be `together` in all but its name.

    Without lag no worker may stay behind, and so none waits.
    """
    mode = config.rollout.update.mode
    if config.run.lag == 0 and mode != "together":
        text = f"{mode} has no effect with run.lag 0: each worker loads new weights at once"
        yield Fault(("rollout", "update", "mode"), f"{text}; set run.lag to 1 or more, or together")


def unread_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each setting of an algorithm that was set and has no effect.

    No policy's trainer would read it, such as one of another surrogate or estimator. Those of the
    run count for each policy that has them, those of a further policy for it alone.
    """
    trainers = tuple(policy_config.trainer for policy_config in each_policy(config))
    for path, text in unread(config.trainer, trainers):
        yield Fault(("trainer", *path), text)
    for (name, section), trainer in zip(config.policies.items(), trainers[1:], strict=True):
        for path, text in unread(section.trainer, (trainer,)):
            yield Fault(("policies", name, "trainer", *path), text)
