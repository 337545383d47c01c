"""Settings of the trajectory manager."""

from pydantic import Field

from infra.settings import ProcessSettings, Section


class ManagerSection(Section):
    """The trajectory manager."""

    group: str = Field("trajectory-managers", description="Consumer group that shares `requests`")
    slot: str = Field(
        "0", description="Stable name of this process among its peers; names its transactions"
    )
    no_progress_s: float = Field(
        20, gt=0, description="A turn without output for this long goes to another worker"
    )
    hand_back_s: float = Field(
        0.25,
        gt=0,
        description="How long after a worker left its role its turns may still be handed back",
    )
    commit_interval_s: float = Field(
        0.2, gt=0, description="How often trajectories and offsets are committed"
    )


class ManagerSettings(ProcessSettings):
    """Everything `python -m consumers.trajectories` reads from the environment."""

    manager: ManagerSection = ManagerSection()
