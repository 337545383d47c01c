"""Settings of a simulation: the section `simulation` of a run configuration."""

from dataclasses import fields
from typing import Literal

from pydantic import Field, field_validator

from infra.device_model.hardware import HARDWARE
from infra.device_model.models import MODELS
from infra.device_model.rates import Rates
from infra.settings import Section
from scheduler.decisions.strategies import STRATEGIES
from scheduler.simulation.workload import WorkloadSection


class SimulatedWorkersSection(Section):
    """Workers that are all alike."""

    count: int = Field(1, ge=1, description="Number of them")
    tags: tuple[Literal["rollout", "train"], ...] = Field(
        ("rollout",), min_length=1, description="Roles each can take"
    )
    devices: int = Field(8, ge=1, description="Devices of each")
    hardware: str | None = Field(
        None, description="Their devices, if they differ from simulation.hardware"
    )


class SimulationSection(Section):
    """The modelled cluster, the work of its agents, and the strategies to compare."""

    hardware: str = Field("H100", description=f"Devices of the workers: {', '.join(HARDWARE)}")
    model: str = Field("Qwen3-8B", description=f"Model that is trained: {', '.join(MODELS)}")
    workers: tuple[SimulatedWorkersSection, ...] = Field(
        (
            SimulatedWorkersSection(count=2, tags=("rollout", "train")),
            SimulatedWorkersSection(count=2),
        ),
        min_length=1,
        description="The workers, in lots that are alike",
    )
    rows: int = Field(256, ge=1, description="Most turns that an engine samples at once")
    rates: dict[str, float] = Field(
        default_factory=dict,
        description="Measured times of every worker instead of modelled ones, in seconds: "
        f"{', '.join(of.name for of in fields(Rates))}",
    )
    step_s: float = Field(0, ge=0, description="Fixed part of an optimizer step, in seconds")
    publish_s: float = Field(
        0, ge=0, description="Seconds from a trained step until its weights are published"
    )
    workload: WorkloadSection = Field(
        default_factory=WorkloadSection, description="The work of the agents"
    )
    strategies: tuple[str, ...] = Field(
        tuple(STRATEGIES), min_length=1, description="Strategies to compare, as scheduler.policy"
    )
    seed: int = Field(0, description="Seed of all draws")

    @field_validator("rates")
    @classmethod
    def _known(cls, rates: dict[str, float]) -> dict[str, float]:
        unknown = set(rates) - {of.name for of in fields(Rates)}
        if unknown:
            raise ValueError(f"no rate is named {', '.join(sorted(unknown))}")
        if wrong := [name for name, value in rates.items() if value < 0]:
            raise ValueError(f"{', '.join(wrong)} must be at least 0")
        return rates
