"""Settings of a worker of a run."""

from pydantic import Field, NonNegativeInt, field_validator

from seamlessflow.infra.settings import Section
from seamlessflow.infra.worker.tags import SHARED, WorkerTags

NODE_NAME = r"^[A-Za-z0-9_.-]*$"
"""Pattern of the name of a node; empty stands for the head."""


class WorkerSection(Section):
    """A worker of the run: a set of devices of one machine, with a rollout process, a training
    process, or both.
    """

    id: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$", description="Id of the worker")
    tags: WorkerTags = Field(
        ("rollout",),
        min_length=1,
        description="Roles it can take (rollout, train), and tags that describe it, which agents "
        "may ask for: prefill, decode, reward, env, hw:NAME, precision:NAME, or others of the form",
    )
    device: str | None = Field(
        None,
        description="Device of both its processes, such as cuda:1 or auto; if not set, those of "
        "rollout.torch and trainer",
    )
    devices: tuple[NonNegativeInt, ...] = Field(
        (),
        description="Numbers of its devices, if it is several: [0, 1, 2, 3]; device then names "
        "only their kind. A vLLM engine shares each pass among them; each is a rank of the gang",
    )
    policy: str = Field(
        "", description="Policy that it rolls out and trains, of several; empty: run.policy"
    )
    node: str = Field(
        "", pattern=NODE_NAME, description="Node (host) that it is on; empty: that of the gateway"
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="More environment variables of its processes, such as CUDA_VISIBLE_DEVICES",
    )

    @field_validator("devices")
    @classmethod
    def _each_once(cls, devices: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(devices)) < len(devices):
            raise ValueError("names a device twice")
        return devices

    @property
    def shared(self) -> bool:
        """True if it rolls out for whichever policy of the run has most to do."""
        return SHARED in self.tags

    @property
    def device_count(self) -> int:
        """Number of its devices."""
        return max(1, len(self.devices))
