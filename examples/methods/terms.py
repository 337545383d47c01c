"""Terms of your own: more samples for tasks that nobody has solved yet, fewer for the rest."""

from dataclasses import replace


def more_for_unsolved(candidate, choice, random, *, times=2):
    """Return the choice with other samples and turns."""
    solved = candidate.arm.longest > 0 or not candidate.arm.ready
    return choice if solved else replace(choice, samples=times * choice.samples)
