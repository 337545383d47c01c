"""A run's configuration, as each policy has it. Pure.

A further policy has the workers that name it, and its own directories. Its sections `policy` and
`trainer` are the run's, with its own settings over them. Only the first policy has evaluations. A
frozen policy has the model that it names. If it shows another policy's past versions, it has that
policy's section `policy`.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from seamlessflow.config import RunConfig
from seamlessflow.further_policy import FurtherPolicySection
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.settings import PastSection, Section
from seamlessflow.infra.variables import SettingPath
from seamlessflow.trainer.policy import PolicySection

S = TypeVar("S", bound=Section)


def each_policy(config: RunConfig) -> list[RunConfig]:
    """Return the configuration once for each trained policy, the first one first."""
    return [_of_policy(config, name) for name in config.trained] if config.policies else [config]


def each_served(config: RunConfig) -> list[RunConfig]:
    """Return the configuration once for each policy, the trained ones first."""
    return [*each_policy(config), *each_frozen(config)]


def each_frozen(config: RunConfig) -> list[RunConfig]:
    """Return the configuration once for each frozen policy."""
    return [_of_policy(config, name) for name in config.frozen]


def sections_path(policy_config: RunConfig) -> SettingPath:
    """Return the path to a policy's sections in the file; empty for the first policy."""
    run = policy_config.run
    return () if run.policy == run.all_policies[0] else ("policies", run.policy)


def left_out(config: RunConfig) -> str:
    """Return a notice of what a simulation leaves out (other policies, roles); empty for none."""
    notices = []
    if config.policies:
        others = ", ".join(config.policies)
        notices.append(f"policy {config.run.policy} alone is simulated; left out: {others}")
    if config.agents.roles:
        notices.append("an episode is simulated as one session, whatever its roles")
    return "; ".join(notices)


def sharing_faults(config: RunConfig) -> Iterator[Fault]:
    """Yield a fault if there are fewer shared workers than policies without their own worker."""
    shared = [worker.id for worker in config.workers if worker.shared]
    lacking = [
        policy_config.run.policy
        for policy_config in each_served(config)
        if not any(
            "rollout" in worker.tags and not worker.shared for worker in policy_config.workers
        )
    ]
    if shared and len(lacking) > len(shared):
        text = f"{', '.join(lacking)} have no rollout worker of their own, and a shared one stays"
        more = f"with the only policy that it has: share {len(lacking)}, not {len(shared)}"
        yield Fault(("workers",), f"{text} {more}")


def several_policies_faults(config: RunConfig, what: str) -> Iterator[Fault]:
    """Yield a fault if the run has further policies: `what` works for one policy only."""
    if config.policies:
        yield Fault(("policies",), f"{what} is of one policy: leave the further ones out")


def _of_policy(config: RunConfig, name: str) -> RunConfig:
    workers = tuple(
        worker for worker in config.workers if (worker.policy or config.run.policy) == name
    )
    roles = {"policy": name, "policies": config.trained, "frozen": config.frozen}
    run = config.run.model_copy(update=roles)
    changes: dict[str, Any] = {"run": run, "workers": workers, "policies": {}}
    if name in config.policies:
        section = config.policies[name]
        folder = config.out / "policies" / name
        places = {
            "weights_dir": folder / "weights",
            # Below the first policy's, so that an audit and an erasure find all of them.
            "trained_dir": config.trained_dir / name,
            "checkpoints_dir": folder / "checkpoints",
            "metrics_csv": folder / "metrics.csv",
        }
        trainer = config.trainer.model_copy(update=places)
        changes |= {
            "policy": _sampled(config, section),
            "trainer": _with(trainer, section.trainer),
            "evaluation": config.evaluation.model_copy(update={"tasks": None, "sets": {}}),
        }
    return config.model_copy(update=changes)


def _sampled(config: RunConfig, section: FurtherPolicySection) -> PolicySection:
    """Return a further policy's model and how it is sampled."""
    frozen = section.frozen
    if isinstance(frozen, PastSection):
        shown = config.policies.get(frozen.policy)
        return config.policy if shown is None else _sampled(config, shown)
    policy = _with(config.policy, section.policy)
    return policy if frozen is None else policy.model_copy(update={"model": frozen})


def _with(section: S, changes: S) -> S:
    """Return a section with each setting that `changes` sets, at any depth."""
    values = {name: getattr(changes, name) for name in changes.model_fields_set}
    merged = {
        name: _with(getattr(section, name), value) if isinstance(value, Section) else value
        for name, value in values.items()
    }
    return section.model_copy(update=merged)
