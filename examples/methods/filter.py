"""A filter of your own: groups that nearly always succeed leave the loss."""


def too_easy(group, rules, *, above=0.9):
    """Return whether the group leaves the loss."""
    return sum(group.returns) / len(group.returns) > above
