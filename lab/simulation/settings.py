"""A simulation's settings: the section `simulation` of a run configuration."""

from typing import Literal

from pydantic import Field, field_validator

from seamlessflow.infra.device_model.settings import known_hardware
from seamlessflow.infra.settings import Section
from seamlessflow.lab.simulation.workload import WorkloadSection
from seamlessflow.scheduler.decisions.strategies.registry import STRATEGIES


class SimulatedWorkersSection(Section):
    """Workers that are all alike."""

    count: int = Field(1, ge=1, description="Number of workers")
    tags: tuple[Literal["rollout", "train"], ...] = Field(
        ("rollout",), min_length=1, description="Roles that each worker can take"
    )
    devices: int = Field(8, ge=1, description="Devices in each worker")
    hardware: str | None = Field(
        None,
        description="The workers' devices, such as H20, if they differ from device_model.hardware",
    )

    @field_validator("hardware")
    @classmethod
    def _known_hardware(cls, name: str | None) -> str | None:
        return name and known_hardware(name)


class SimulationSection(Section):
    """The simulated workers, their agents' work, and the strategies to compare."""

    workers: tuple[SimulatedWorkersSection, ...] = Field(
        (
            SimulatedWorkersSection(count=2, tags=("rollout", "train")),
            SimulatedWorkersSection(count=2),
        ),
        min_length=1,
        description="The workers, in lots whose workers are alike; if not set, the run's workers, "
        "if the configuration names some",
    )
    rows: int = Field(256, ge=1, description="Most turns that an engine samples at once")
    workload: WorkloadSection = Field(
        default_factory=WorkloadSection, description="The work that the agents make"
    )
    strategies: tuple[str, ...] = Field(
        tuple(STRATEGIES),
        min_length=1,
        description="Strategies to compare, named as in scheduler.policy",
    )
    whole_batches: bool = Field(
        False,
        description="Begin a batch's groups together as soon as the previous batch trains, and "
        "train exactly these (the published one step off). Without it, a step takes the groups "
        "that are ready first. Changes nothing with run.lag 0",
    )
    seed: int = Field(0, description="Seed for all draws")

    @field_validator("workers")
    @classmethod
    def _take_both_roles(
        cls, workers: tuple[SimulatedWorkersSection, ...]
    ) -> tuple[SimulatedWorkersSection, ...]:
        tags = {tag for lot in workers for tag in lot.tags}
        if lacking := [role for role in ("rollout", "train") if role not in tags]:
            raise ValueError(f"no worker has the tag {lacking[0]}")
        return workers
