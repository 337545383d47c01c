"""A mixer of your own: a group that failed whole gets a success of its task, but not every time.

A policy that always sees a success may lean on it. So most of such groups stay as they are, and
those of other tasks are trained with a stored group whose returns differ most.
"""

from seamlessflow.trainer.mixing.mixers import Plan, Replacement


def sometimes(step, fresh, pools, random, *, share=0.5):
    """Return the stored sessions of a step."""
    replaced = []
    for group in fresh:
        stored = [
            (pool.name, session)
            for pool in pools.values()
            for past in pool.of_task(group.task_id)
            for session in past.sessions
            if session.reward > max(group.returns)
            and session.session_id not in [each.by.session_id for each in replaced]
        ]
        if max(group.returns) <= 0 and stored and random.random() < share:
            name, by = random.choice(stored)
            worst = min(group.sessions, key=lambda session: session.reward)
            replaced.append(Replacement(group.group_id, worst.session_id, name, by))
    if replaced:
        return Plan(replace=replaced)
    names = {group.group_id for group in fresh}
    past = [group for pool in pools.values() for group in pool.groups()]
    other = [group for group in past if group.group_id not in names]
    widest = max(other, key=lambda group: max(group.returns) - min(group.returns), default=None)
    return Plan(add=[widest] if widest else [])
