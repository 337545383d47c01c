"""A selection of your own: the shortest success and the longest failure of each group, and others.

They show the policy what to do with fewest words, and where many words led nowhere.
"""


def contrasts(episodes, rules, random, *, others=2):
    """Return for each session of a group whether it is trained."""
    places = range(len(episodes))
    good = [place for place in places if episodes[place].reward > 0]
    bad = [place for place in places if episodes[place].reward <= 0]
    chosen = set(sorted(good, key=lambda place: len(episodes[place]))[:1])
    chosen.update(sorted(bad, key=lambda place: -len(episodes[place]))[:1])
    rest = [place for place in places if place not in chosen]
    chosen.update(random.sample(rest, min(others, len(rest))))
    return [place in chosen for place in places]
