"""Which dialect is spoken at which path."""

from collections.abc import Mapping

from producers.gateway.dialects import openai_completions, openai_shape
from producers.gateway.dialects.anthropic_messages import events as messages_events
from producers.gateway.dialects.anthropic_messages import request as messages_request
from producers.gateway.dialects.anthropic_messages import response as messages_response
from producers.gateway.dialects.dialect import Dialect
from producers.gateway.dialects.openai_chat import request as chat_request
from producers.gateway.dialects.openai_chat import response as chat_response
from producers.gateway.dialects.openai_responses import events as responses_events
from producers.gateway.dialects.openai_responses import request as responses_request
from producers.gateway.dialects.openai_responses import response as responses_response


class OpenAiChat:
    """`POST /v1/chat/completions`."""

    parse = staticmethod(chat_request.parse)
    completion = staticmethod(chat_response.completion)
    events = staticmethod(chat_response.Chunks)
    error_body = staticmethod(openai_shape.error_body)


class OpenAiCompletions:
    """`POST /v1/completions`."""

    parse = staticmethod(openai_completions.parse)
    completion = staticmethod(openai_completions.completion)
    events = staticmethod(openai_completions.Completions)
    error_body = staticmethod(openai_shape.error_body)


class OpenAiResponses:
    """`POST /v1/responses`."""

    parse = staticmethod(responses_request.parse)
    completion = staticmethod(responses_response.completion)
    events = staticmethod(responses_events.ResponseEvents)
    error_body = staticmethod(openai_shape.error_body)


class AnthropicMessages:
    """`POST /v1/messages`."""

    parse = staticmethod(messages_request.parse)
    completion = staticmethod(messages_response.completion)
    events = staticmethod(messages_events.MessageEvents)
    error_body = staticmethod(messages_response.error_body)


OPENAI: Dialect = OpenAiChat()
ANTHROPIC: Dialect = AnthropicMessages()

DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": OPENAI,
    "/v1/completions": OpenAiCompletions(),
    "/v1/responses": OpenAiResponses(),
    "/v1/messages": ANTHROPIC,
}


def dialect_of(path: str, headers: Mapping[bytes, bytes]) -> Dialect:
    """Whose errors a call gets, where no dialect is spoken as well."""
    spoken = DIALECTS.get(path)
    if spoken is not None:
        return spoken
    # Anthropic's clients send it with every call.
    known = path.startswith("/v1/messages") or b"anthropic-version" in headers
    return ANTHROPIC if known else OPENAI
