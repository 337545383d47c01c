"""Settings of the gateway process; its own ones are `SEAMLESSFLOW_GATEWAY__*`."""

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from seamlessflow.infra.settings import ProcessSettings, Section, SentKey
from seamlessflow.schemas.topics import REQUESTS

KEY_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


class GatewaySection(Section):
    """The gateway's addresses, keys, limits and times."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8800, ge=0, le=65535, description="Port to listen on; 0: a free one")
    public_url: str | None = Field(
        None,
        description="URL where agents reach the gateways, without /v1; default: http://host:port",
    )
    secret: SecretStr = Field(
        description="Text that signs session keys, at least 16 characters; all gateways need the "
        "same",
        min_length=16,
    )
    admin_key: SentKey | None = Field(
        None,
        description="Key with which sessions may be opened, rewarded and closed; default: derived "
        "from secret",
    )
    api_keys: dict[
        Annotated[str, Field(pattern=KEY_NAME)], Annotated[SentKey, Field(min_length=1)]
    ] = Field(
        default_factory=dict,
        description="API keys by name, for agents that open no session. The first request begins a "
        "session for each name in the requests' headers; without such a header, one for each key",
    )
    key_grace_s: float = Field(
        300,
        ge=0,
        description="Seconds that a session key stays valid beyond the session's greatest age "
        "(max_age_s when it was opened); after that it gets 401",
    )
    policy: str = Field(
        "policy", min_length=1, description="Policy that answers in sessions that a request begins"
    )
    modules: dict[str, str] = Field(
        default_factory=dict,
        description="Policy for each agent module (header x-seamlessflow-module) in such sessions; "
        "`policy` answers all other modules",
    )
    session_idle_s: float = Field(
        3600, gt=0, description="Seconds without a turn after which such a session is closed"
    )
    session_age_s: float = Field(
        86400, gt=0, description="Seconds after which such a session is closed even if it is in use"
    )
    models: tuple[str, ...] = Field(
        ("policy",),
        description="Model names that /v1/models lists. They do not decide which policy answers: "
        "the session does",
    )
    max_body_bytes: int = Field(
        REQUESTS.max_record_bytes,
        gt=0,
        description="Most bytes in a request body; a larger one gets 413",
    )
    max_in_flight: int = Field(4096, gt=0, description="Most calls under way; further ones get 429")
    max_in_flight_bytes: int = Field(
        512 * 1024 * 1024,
        ge=1024 * 1024,
        description="Most bytes in the bodies of calls under way and in commands that wait for "
        "Kafka. Further calls get 429, or 503 while Kafka takes nothing",
    )
    max_choices: int = Field(16, gt=0, description="Largest n in one call")
    turn_timeout_s: float = Field(
        600, gt=0.1, description="Seconds after which a turn without an answer fails with 504"
    )
    command_timeout_s: float = Field(
        15, gt=0, description="Seconds after which a session command without an answer gets 504"
    )
    command_expiry_s: float = Field(
        10,
        gt=0,
        description="Seconds after which the manager refuses a session command instead of carrying "
        "it out. Keep it below command_timeout_s, by the time that an answer takes and the "
        "difference between the clocks",
    )
    body_timeout_s: float = Field(
        30,
        gt=0,
        description="Seconds that a client may take to send a head or body (then it gets 408), or "
        "to read the last bytes before a connection closes",
    )
    disconnect_grace_s: float = Field(
        10,
        ge=0,
        description="Seconds that a turn goes on after its client left; a retry can join it",
    )
    stream_keep_alive_s: float = Field(
        15,
        gt=0,
        description="Seconds without an event after which a streaming client gets a keep-alive. "
        "Its status is then 200, and a later failure is sent as an event",
    )
    reuse_port: bool = Field(
        False,
        description="Share host and port with other gateways on this machine: the kernel gives "
        "each new connection to one of them",
    )
    leave_s: float = Field(
        0,
        ge=0,
        description="Seconds that a gateway still takes calls after it was asked to end. Meanwhile "
        "/ready says 503, no session is opened, and each answer closes its connection. Choose the "
        "time that your load balancer needs to notice; without one, the longest time that a "
        "session takes",
    )
    shutdown_timeout_s: float = Field(
        30, ge=0, description="Seconds that calls under way get to finish at shutdown"
    )
    keep_alive_s: float = Field(75, gt=0, description="Seconds that an idle connection is kept")
    kafka_timeout_s: float = Field(
        5,
        gt=0,
        description="Seconds without an acknowledgement after which Kafka counts as unreachable",
    )
    linger_ms: float = Field(
        0,
        ge=0,
        description="Milliseconds that a record waits for others before it is sent; 0 is best for "
        "few agents",
    )

    @model_validator(mode="after")
    def _commands_expire_in_time(self) -> Self:
        """Raise `ValueError` if a command could be carried out after its client got 504."""
        if self.command_expiry_s >= self.command_timeout_s:
            raise ValueError(
                f"gateway.command_expiry_s ({self.command_expiry_s:g}) must be below "
                f"gateway.command_timeout_s ({self.command_timeout_s:g}): a command that is "
                "carried out must be answered while its client waits"
            )
        return self


class GatewaySettings(ProcessSettings):
    """All settings of the gateway process."""

    gateway: GatewaySection = Field(default_factory=dict, validate_default=True)
