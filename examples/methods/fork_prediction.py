"""A prediction of your own for live forks: the chance to pass behind a turn.

A session that passed has less left to do at a later turn, so another one passes more often there;
one that failed has spent more of its turns.
"""


def by_progress(forked, *, weight=0.5):
    """Return the chance that a session passes which goes on from a turn, from 0 to 1."""
    turns = forked.turn + forked.turns_left - 1
    done = (forked.turn - 1) / turns
    rate = forked.candidate.rate
    return rate + weight * done * (min(1.0, max(0.0, forked.parent_return)) - rate)
