"""A strategy of your own: some workers always roll out, the others do as `multiplexed` does."""

from seamlessflow.scheduler.decisions.strategies.built_in import multiplexed


def keeps_some(snapshot, *, kept=()):
    """Return the roles that workers should have; `kept` are ids of those that always roll out."""
    return [
        wanted._replace(role="rollout", reason="always rolls out")
        if wanted.worker in kept
        else wanted
        for wanted in multiplexed(snapshot)
    ]
