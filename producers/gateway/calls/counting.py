"""Token counts for prompts, in the dialects that offer them. A count makes no turn."""

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.producers.gateway.calls.callers import MODULE_HEADER, Caller, text_in
from seamlessflow.producers.gateway.dialects.canonical import Prompt
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import Exchange
from seamlessflow.producers.gateway.link import Link
from seamlessflow.producers.gateway.server_span import served
from seamlessflow.producers.gateway.settings import GatewaySection
from seamlessflow.schemas.records import CommandAnswered, CountTokens


@dataclass(frozen=True, slots=True)
class CountForm:
    """A dialect's form for counts: how to read the request, and where the answer has the number."""

    prompt: Callable[[bytes], Prompt]
    member: str


class Counting:
    """The handler for token-count requests."""

    def __init__(self, link: Link, settings: GatewaySection, telemetry: Telemetry) -> None:
        self._link = link
        self._settings = settings
        self._telemetry = telemetry

    async def serve(self, exchange: Exchange, caller: Caller, form: CountForm) -> None:
        """Ask the manager for the count and answer the call. Raises `ApiError`."""
        settings = self._settings
        body = await exchange.body(settings.max_body_bytes, settings.body_timeout_s)
        command = self._command(form.prompt(body), caller, exchange)
        with served(self._telemetry, exchange, caller.session_id) as span:
            reply = await self._link.ask(command, span.headers)
            if not isinstance(reply, CommandAnswered) or reply.tokens is None:
                raise ApiError(500, "the manager gave no count")
            await exchange.answer(200, orjson.dumps({form.member: reply.tokens}))

    def _command(self, asked: Prompt, caller: Caller, exchange: Exchange) -> CountTokens:
        return CountTokens(
            **self._link.command_fields(caller.session_id, self._settings.command_expiry_s),
            messages=asked.messages,
            tools=asked.tools,
            module=text_in(exchange.headers, MODULE_HEADER),
            terms=caller.terms,
        )
