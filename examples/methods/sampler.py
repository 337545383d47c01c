"""A sampler of your own: tasks that were half solved, and now and then one that was never drawn.

It looks at the newest result of each task alone, and at nothing older.
"""

from seamlessflow.scheduler.sampling.ask import TaskChoice


def half_solved(ask, *, new=0.25):
    """Return at most `ask.count` choices among `ask.candidates`."""
    tasks = sorted(ask.candidates, key=lambda task: (distance(task.arm), task.place))
    fresh = [task for task in tasks if not task.arm.ready]
    seen = [task for task in tasks if task.arm.ready]
    chosen = []
    while len(chosen) < ask.count and (fresh or seen):
        takes_new = fresh and (not seen or ask.random.random() < new)
        task = fresh.pop(ask.random.randrange(len(fresh))) if takes_new else seen.pop(0)
        figures = {"passed": task.arm.last_passed, "of": task.arm.last_counted}
        chosen.append(TaskChoice(place=task.place, figures=figures))
    return chosen


def distance(arm):
    """Return how far the newest group of a task was from half solved."""
    return abs(arm.last_passed / arm.last_counted - 0.5) if arm.last_counted else 0.5
