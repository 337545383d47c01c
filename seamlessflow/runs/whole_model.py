"""A run's adapter version, merged into its base model. Called by `seamlessflow merge`."""

from dataclasses import dataclass
from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.weights.adapter import AdapterInvalid
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.weights.versions import lease
from seamlessflow.runs.chosen_weights import choose_weights
from seamlessflow.trainer.backends.adapter.whole_model import merge


@dataclass(frozen=True, slots=True)
class MergedModel:
    """A version that was merged, and its base model's directory."""

    version: int
    base: str


def write_merged(
    config: RunConfig, to: Path, version: int | None, policy: str | None
) -> MergedModel:
    """Write a policy's version, by default the first policy's newest, to a new directory.

    Raises `SettingsRejected` if the directory exists or if the run does not have the policy. Raises
    `NoSuchVersion`, `WeightsInvalid`, and `AdapterInvalid` if the version is a whole model or its
    base has changed.
    """
    if to.exists():
        raise SettingsRejected("--to", f"{to} exists: name a new directory")
    policies = {policy_config.run.policy: policy_config for policy_config in each_policy(config)}
    name = config.run.policy if policy is None else policy
    if name not in policies:
        raise SettingsRejected(
            "--policy", f"the run has no policy {name}, but {', '.join(policies)}"
        )
    chosen = choose_weights(policies[name], version, None)
    directory = chosen.directory
    if (base := chosen.base) is None:
        raise AdapterInvalid(str(directory), "it is a whole model, there is nothing to merge")
    # A run that goes on would delete the version.
    with lease(directory):
        verify(directory)
        base.verify(directory)
        merge(Path(base.directory), directory, to)
    return MergedModel(chosen.version, base.directory)
