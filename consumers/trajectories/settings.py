"""The trajectory manager's settings."""

from pydantic import Field

from seamlessflow.infra.settings import ProcessSettings, Section
from seamlessflow.infra.worker.control_rule import SharedRolloutSection
from seamlessflow.infra.worker.judged_rewards import SharedRewardsSection


class ManagerSection(Section):
    """The trajectory manager."""

    group: str = Field(
        "trajectory-managers",
        description="Kafka consumer group in which managers share the partitions of `requests`",
    )
    slot: str = Field(
        "",
        description="This manager's name among all managers; its transactions carry it. It must "
        "differ for each running manager and stay the same after a restart. Otherwise a "
        "transaction that a kill left open holds up readers for up to 15 s; default: a new name at "
        "each start",
    )
    no_progress_s: float = Field(
        20,
        gt=0,
        description="Seconds without output after which a turn is dispatched to another worker",
    )
    hand_back_s: float = Field(
        0.25,
        gt=0,
        description="Seconds that a worker has, after leaving its role, to hand back its turns",
    )
    commit_interval_s: float = Field(
        0.2, gt=0, description="Seconds between two commits of trajectories and offsets"
    )
    transaction_records: int = Field(
        1_000, ge=1, description="Most trajectories in one transaction"
    )
    transaction_mb: float = Field(
        32,
        gt=0,
        description="Most trajectory megabytes in one transaction; a larger trajectory is "
        "committed alone",
    )
    memory_mb: float = Field(
        512,
        ge=0,
        description="Most megabytes for open sessions, as the manager estimates them. Beyond that, "
        "the sessions that were idle longest are spilled to a file. The process takes about 200 MB "
        "more",
    )
    spill_dir: str = Field(
        "",
        description="Directory for the file with spilled sessions; it should be on a disk, not in "
        "memory; default: `spilled` in the data directory. The file has no name and disappears "
        "with the process",
    )


class ManagerSettings(ProcessSettings):
    """All settings of `python -m seamlessflow.consumers.trajectories`.

    It reads only one rule from `rollout`: the rule that ends turns early, which is recorded with
    each turn. From `rewards` it reads only the judges' names, and the time that a session waits for
    them.
    """

    manager: ManagerSection = ManagerSection()
    rollout: SharedRolloutSection = Field(default_factory=SharedRolloutSection)
    rewards: SharedRewardsSection = Field(default_factory=SharedRewardsSection)
