"""A mask of your own: the first turns of each session leave the loss.

Where every session begins with the same greeting or plan, its tokens teach nothing of the task.
"""


def later_turns(episodes, *, first=1):
    """Return for each session an array: which of its trained tokens stay in the loss."""
    return [episode.turns_N >= first for episode in episodes]
