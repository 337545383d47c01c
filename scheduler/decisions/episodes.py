"""Episodes: groups for several roles, admitted together and issued as one. Pure.

Each role has its own group, with the same task and sample count. Sample k of all groups is one
episode, so it is one `Task`. The first role's group has the draw. A scheduler may end between the
records for two roles. The next scheduler then admits the rest, before it issues any of their tasks.
A frozen policy's role has sessions but no admitted group. Called by `pacing.py` and `decide.py`.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace

from seamlessflow.infra.settings import SharedRunSection
from seamlessflow.scheduler.decisions.group_credits import unfinished
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.scheduler.state.ledger import AdmittedGroup, Ledger, first_of
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r

Roles = tuple[r.EpisodeRole, ...]


def roles_of(name: str, run: SharedRunSection, wanted: Collection[str] = ()) -> Roles:
    """Return an episode's roles: the run's first policy first, frozen policies last.

    `wanted`: the roles that the task names. If none of them is trained, all the run's roles are
    returned.
    """
    roles = [
        r.EpisodeRole(
            role=role,
            policy=policy,
            group_id=f"{name}-{role}",
            trained=policy in run.all_policies,
        )
        for role, policy in run.roles.items()
    ]
    chosen = [role for role in roles if role.role in wanted]
    if not any(role.trained for role in chosen):
        chosen = roles
    return tuple(sorted(chosen, key=lambda role: (role.policy != run.policy, not role.trained)))


def of_first_role(group: r.GroupAdmitted, state: State) -> r.GroupAdmitted:
    """Return a group as its first role's group; unchanged if it has no roles."""
    return _of_role(group, group.roles[0], state) if group.roles else group


def further_roles(admitted: r.GroupAdmitted, state: State) -> list[r.GroupAdmitted]:
    """Return the trained roles' groups that follow an admitted group."""
    groups = [role.group_id for role in admitted.roles if role.trained]
    left = groups[groups.index(admitted.group_id) + 1 :] if groups else []
    return [_of_role(admitted, role, state) for role in admitted.roles if role.group_id in left]


def by_episode(ledger: Ledger) -> Mapping[str, Sequence[AdmittedGroup]]:
    """Return the groups whose samples are the same episodes, by their first role's group.

    Groups whose further roles are not admitted yet are left out.
    """
    groups: defaultdict[str, list[AdmittedGroup]] = defaultdict(list)
    for name, group in ledger.groups.items():
        groups[first_of(group.roles, name)].append(group)
    if ledger.admitting is not None:
        groups.pop(first_of(ledger.admitting.roles, ""), None)
    return groups


def all_groups(state: State, ledger: Ledger, settings: SchedulerSettings) -> Ledger:
    """Return a ledger with all roles' groups, collected from each policy's ledger."""
    if not settings.run.roles:
        return ledger
    policies = unfinished(state, settings).values()
    groups = {name: group for policy in policies for name, group in policy.ledger.groups.items()}
    return replace(state.first.ledger, groups=groups)


def under_way(state: State) -> Set[str]:
    """Return the groups for which tasks are issued.

    With roles this is the first role's group, until all the roles' groups have ended.
    """
    ledgers = [policy.ledger for policy in state.by_policy]
    return {
        first_of(group.roles, name) for ledger in ledgers for name, group in ledger.groups.items()
    }


def _of_role(group: r.GroupAdmitted, role: r.EpisodeRole, state: State) -> r.GroupAdmitted:
    policies = dict(zip(state.policies, state.by_policy, strict=True))
    return replace(
        group,
        epoch=state.epoch,
        group_id=role.group_id,
        role=role.role,
        policy=role.policy,
        version=policies.get(role.policy, state.first).steps.version or 0,
    )
