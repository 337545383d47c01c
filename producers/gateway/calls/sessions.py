"""The session interface: open, describe, reward, close.

All calls but a description are answered once the manager has recorded them.

A call repeated with its `Idempotency-Key` gets the first call's answer.
"""

import hashlib
import secrets
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import quote

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from seamlessflow.infra.settings import SamplingSection
from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.infra.worker.judged_rewards import JUDGING
from seamlessflow.infra.worker.tags import WISHES, read_wishes
from seamlessflow.producers.gateway.calls.callers import sent_key
from seamlessflow.producers.gateway.calls.keys import Keys
from seamlessflow.producers.gateway.dialects.dialect import turn_of
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import Exchange
from seamlessflow.producers.gateway.link import Link
from seamlessflow.producers.gateway.replies import ReplyRecord
from seamlessflow.producers.gateway.server_span import opened_in, served, trace_headers
from seamlessflow.producers.gateway.settings import GatewaySection
from seamlessflow.schemas.forks import check_form
from seamlessflow.schemas.json_form import RECORD_JSON
from seamlessflow.schemas.records import (
    AssignReward,
    CloseSession,
    CommandAnswered,
    DescribeSession,
    ForkedPrefix,
    OpenSession,
    Reward,
    SeedSession,
)

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:@-]*$"
Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=65_536)]
Count = Annotated[int, Strict(), Field(ge=0, lt=2**31)]
Size = Annotated[int, Strict(), Field(ge=1, lt=2**31)]
Seconds = Annotated[float, Strict(), Field(ge=0, le=366 * 86400)]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
"""A number in a body must be a JSON number: `true` and a number in quotes are refused."""


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, **RECORD_JSON)


class OpenBody(_Body):
    """The body of `POST /sessions`."""

    session_id: Name | None = None
    policy: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    policies: dict[Text, Text] = {}
    purpose: Literal["train", "eval", "explore", "judge"] = "train"
    split: Text = "train"
    task_id: Text = ""
    group_id: Text = ""
    sample: Count = 0
    attempt: Count = 0
    group_size: Size = 1
    min_group_size: Size = 1
    turn_limit: Count = 0
    pinned_version: Count | None = None
    metadata: dict[str, Text] = {}
    module: Text = ""
    agent: Text = ""
    max_age_s: Seconds = 86400
    max_idle_s: Seconds = 3600
    fork: ForkedPrefix | None = None
    overrides: SamplingSection | None = None
    seed_session: SeedSession | None = None

    @field_validator("metadata")
    @classmethod
    def _tags(cls, metadata: dict[str, str]) -> dict[str, str]:
        read_wishes(metadata.get(WISHES, ""))
        return metadata

    @field_validator("fork")
    @classmethod
    def _well_formed(cls, fork: ForkedPrefix | None) -> ForkedPrefix | None:
        if fork is not None:
            check_form(fork)
        return fork

    @model_validator(mode="after")
    def _never_trained(self) -> Self:
        if self.overrides is not None and self.purpose not in ("eval", JUDGING):
            raise ValueError("overrides: what may be trained is sampled as the policy is")
        return self


class RewardBody(_Body):
    """The body of `POST /sessions/{id}/reward`; `turn` is the id of a response."""

    value: Number
    name: Text = "reward"
    turn: Text | None = None
    final: bool = True
    source: Text = "agent"
    revision: Count = 0


class CloseBody(_Body):
    """The body of `POST /sessions/{id}/close`."""

    status: Literal[
        "complete", "truncated", "aborted", "timeout", "pruned", "filtered", "unrewarded"
    ] = "complete"
    reason: Text = ""
    cause: Literal["policy", "environment", "infrastructure", "setting"] = "policy"
    on_limit: Literal["zero", "retry", "drop"] = "zero"
    await_reward_s: Seconds = 0
    await_rewards: tuple[Text, ...] = ()


_OWN_FORMS = ("max_age_s", "max_idle_s", "fork", "overrides", "seed_session")
"""`OpenBody` members that the command has in another form."""
B = TypeVar("B", bound=_Body)


class Sessions:
    """The session interface's handlers."""

    def __init__(
        self, link: Link, settings: GatewaySection, keys: Keys, url: str, telemetry: Telemetry
    ) -> None:
        self._link = link
        self._settings = settings
        self._keys = keys
        self._url = url
        self._telemetry = telemetry

    async def open(self, exchange: Exchange, _: str) -> None:
        """Serve `POST /sessions`. Raises `ApiError`."""
        body = await self._body(exchange, OpenBody)
        key = sent_key(exchange.headers)
        # A repeated call without an id must name the same session.
        session_id = body.session_id or (_id_of(key) if key else secrets.token_hex(12))
        fields = body.model_dump(exclude={*_OWN_FORMS, "session_id"})
        command = OpenSession(
            **self._command_fields(session_id),
            idempotency_key=key,
            **fields,
            fork=body.fork,
            overrides=body.overrides.overrides if body.overrides is not None else None,
            seed_session=body.seed_session,
            max_age_ms=_ms(body.max_age_s),
            max_idle_ms=_ms(body.max_idle_s),
        )
        with served(self._telemetry, exchange, session_id) as span:
            answered = await self._link.ask(command, span.headers)
            # The session's calls belong to the trace of the program that opened it.
            parent = trace_headers(exchange.headers) if self._telemetry.enabled else ()
            answer = {
                "session_id": session_id,
                "api_key": self._keys.session_key(
                    session_id, opened_in(parent), self._key_end_ms(command, answered)
                ),
                "base_url": f"{self._url}/sessions/{quote(session_id)}/v1",
            }
            await exchange.answer(201, orjson.dumps(answer))

    async def reward(self, exchange: Exchange, session_id: str) -> None:
        """Serve `POST /sessions/{id}/reward`. Raises `ApiError`."""
        body = await self._body(exchange, RewardBody)
        reward = Reward(
            name=body.name,
            value=body.value,
            scope="session" if body.turn is None else "turn",
            turn_id=None if body.turn is None else turn_of(body.turn),
            source=body.source,
            revision=body.revision,
        )
        command = AssignReward(
            **self._command_fields(session_id),
            idempotency_key=sent_key(exchange.headers),
            reward=reward,
            final=body.final,
        )
        await self._answer(exchange, command)

    async def close(self, exchange: Exchange, session_id: str) -> None:
        """Serve `POST /sessions/{id}/close`. Raises `ApiError`."""
        body = await self._body(exchange, CloseBody)
        command = CloseSession(
            **self._command_fields(session_id),
            idempotency_key=sent_key(exchange.headers),
            status=body.status,
            reason=body.reason,
            cause=body.cause,
            on_limit=body.on_limit,
            await_reward_ms=_ms(body.await_reward_s),
            await_rewards=body.await_rewards,
        )
        await self._answer(exchange, command)

    async def describe(self, exchange: Exchange, session_id: str) -> None:
        """Serve `GET /sessions/{id}`. Raises `ApiError`."""
        question = DescribeSession(**self._command_fields(session_id))
        with served(self._telemetry, exchange, session_id) as span:
            answered = await self._link.ask(question, span.headers)
            if not isinstance(answered, CommandAnswered) or answered.state is None:
                raise ApiError(500, "the manager gave no description")
            await exchange.answer(200, answered.state)

    async def _answer(self, exchange: Exchange, command: AssignReward | CloseSession) -> None:
        with served(self._telemetry, exchange, command.session_id) as span:
            answered = await self._link.ask(command, span.headers)
            # Not the request's id: that may be a name, which stands for the open session.
            await exchange.answer(200, orjson.dumps({"session_id": answered.session_id}))

    async def _body(self, exchange: Exchange, kind: type[B]) -> B:
        settings = self._settings
        data = await exchange.body(settings.max_body_bytes, settings.body_timeout_s)
        try:
            return kind.model_validate_json(data or b"{}")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            param = ".".join(map(str, first["loc"])) or None
            message = f"{param}: {first['msg']}" if param else first["msg"]
            raise ApiError(400, message, code="invalid_value", param=param) from error

    def _command_fields(self, session_id: str) -> dict[str, Any]:
        return self._link.command_fields(session_id, self._settings.command_expiry_s)

    def _key_end_ms(self, command: OpenSession, answered: ReplyRecord) -> int:
        """Return when the session's key expires. A repeated call gets the same time."""
        end_ms = answered.open_until_ms if isinstance(answered, CommandAnswered) else None
        until_ms = command.issued_at_ms + command.max_age_ms if end_ms is None else end_ms
        return until_ms + _ms(self._settings.key_grace_s)


def _id_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
