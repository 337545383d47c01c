"""Check of settings of an algorithm that no policy's trainer would read, such as those of another
surrogate or estimator.
"""

from collections.abc import Iterator

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.faults import Fault
from seamlessflow.trainer.unread import unread


def unread_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault for each setting that was set and has no effect.

    Those of the run count for each policy that has them, those of a further policy for it alone.
    """
    trainers = tuple(policy_config.trainer for policy_config in each_policy(config))
    for path, text in unread(config.trainer, trainers):
        yield Fault(("trainer", *path), text)
    for (name, section), trainer in zip(config.policies.items(), trainers[1:], strict=True):
        for path, text in unread(section.trainer, (trainer,)):
            yield Fault(("policies", name, "trainer", *path), text)
