"""A prediction of your own for the sampler `trace`: the rate of passes of a task.

It trusts a task's own results once it has eight samples, and its pool's rate before.
"""


def own_results_first(candidate, *, enough=8):
    """Return the rate of passes of a candidate, from 0 to 1."""
    passed, failed = candidate.counts
    if passed + failed < enough:
        return candidate.pool_rate
    return passed / (passed + failed)
