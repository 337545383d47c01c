"""GatewaySettings of the gateway process, `SEAMLESSFLOW_GATEWAY__*`."""

from typing import Annotated

from pydantic import Field, SecretStr

from infra.settings import ProcessSettings, Section
from schemas.topics import REQUESTS

KEY_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


class GatewaySection(Section):
    """Where it listens, whom it lets in, how long it waits."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8800, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    public_url: str | None = Field(
        None, description="How agents reach the gateways, without /v1; none: http://host:port"
    )
    secret: SecretStr = Field(
        description="Signs session tokens; the same for all gateways, 16 characters or more",
        min_length=16,
    )
    admin_key: SecretStr | None = Field(
        None, description="Bearer token that may open, reward and close; none: made of the secret"
    )
    api_keys: dict[
        Annotated[str, Field(pattern=KEY_NAME)], Annotated[SecretStr, Field(min_length=1)]
    ] = Field(
        default_factory=dict,
        description="Keys by name, for agents that open no session: one begins with the first "
        "request for each session their headers name, else for each key",
    )
    policy: str = Field(
        "policy", min_length=1, description="Policy that answers sessions which nobody opened"
    )
    modules: dict[str, str] = Field(
        default_factory=dict,
        description="Policy of each module of an agent (header x-seamlessflow-module) in such "
        "sessions; all others are answered by `policy`",
    )
    session_idle_s: float = Field(
        3600, gt=0, description="Seconds without a turn after which such a session is closed"
    )
    session_age_s: float = Field(
        86400, gt=0, description="Seconds after which such a session is closed in any case"
    )
    models: tuple[str, ...] = Field(
        ("policy",), description="Names listed by /v1/models; the session decides who answers"
    )
    max_body_bytes: int = Field(
        REQUESTS.max_record_bytes, gt=0, description="Largest request body; larger gets 413"
    )
    max_in_flight: int = Field(4096, gt=0, description="Calls under way; further ones get 429")
    max_choices: int = Field(16, gt=0, description="Largest n of one call")
    turn_timeout_s: float = Field(
        600, gt=0.1, description="Seconds until a turn that is not answered fails with 504"
    )
    command_timeout_s: float = Field(
        15, gt=0, description="Seconds until a session command that is not answered gets 504"
    )
    body_timeout_s: float = Field(
        30, gt=0, description="Seconds a client may take to send a head or a body; then 408"
    )
    disconnect_grace_s: float = Field(
        10,
        ge=0,
        description="Seconds a turn goes on after its client left, so that a retry can join it",
    )
    stream_keep_alive_s: float = Field(
        15,
        gt=0,
        description="Seconds after which a streaming client is told that its call is alive; from "
        "then on its status is 200, and a failure comes as an event",
    )
    shutdown_timeout_s: float = Field(
        30, ge=0, description="Seconds calls under way may take at shutdown"
    )
    keep_alive_s: float = Field(75, gt=0, description="Seconds an idle connection is kept")
    kafka_timeout_s: float = Field(
        5,
        gt=0,
        description="Seconds without an acknowledgement after which Kafka counts as not reachable",
    )
    start_timeout_s: float = Field(
        30, gt=0, description="Seconds to wait for Kafka at start before giving up"
    )
    linger_ms: float = Field(
        0, ge=0, description="Milliseconds a record waits for others; 0 is best for few agents"
    )


class GatewaySettings(ProcessSettings):
    """All settings of the process."""

    gateway: GatewaySection = Field(default_factory=dict, validate_default=True)
