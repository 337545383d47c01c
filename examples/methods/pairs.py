"""Pairs of your own: of two sessions that both passed, the shorter one is to be preferred.

Beside that each failure is compared with the shortest pass, so a group of failures has no pair.
"""


def shorter_passes(episodes, *, at_least=1.0):
    """Return pairs of places in the group, the session to prefer first."""
    places = range(len(episodes))
    passes = [place for place in places if episodes[place].reward >= at_least]
    if not passes:
        return []
    best = min(passes, key=lambda place: (len(episodes[place]), place))
    return [(best, place) for place in places if _worse(episodes[place], episodes[best], at_least)]


def _worse(episode, best, at_least):
    return episode.reward < at_least or len(episode) > len(best)
