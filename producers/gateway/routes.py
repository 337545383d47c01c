"""The dialects by the path at which they are spoken. A new dialect is a class and a line here."""

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


# Functions of a class would be bound as methods, hence `staticmethod`.
class OpenAiChat:
    """Dialect of `POST /v1/chat/completions`."""

    parse = staticmethod(chat_request.parse)
    completion = staticmethod(chat_response.completion)
    events = staticmethod(chat_response.ChatEvents)
    error_body = staticmethod(openai_shape.error_body)


class OpenAiCompletions:
    """Dialect of `POST /v1/completions`."""

    parse = staticmethod(openai_completions.parse)
    completion = staticmethod(openai_completions.completion)
    events = staticmethod(openai_completions.CompletionEvents)
    error_body = staticmethod(openai_shape.error_body)


class OpenAiResponses:
    """Dialect of `POST /v1/responses`."""

    parse = staticmethod(responses_request.parse)
    completion = staticmethod(responses_response.completion)
    events = staticmethod(responses_events.ResponseEvents)
    error_body = staticmethod(openai_shape.error_body)


class AnthropicMessages:
    """Dialect of `POST /v1/messages`."""

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
    """Return the dialect whose error format this call expects.

    Also works for paths that belong to no dialect, such as `/v1/models`.
    """
    spoken = DIALECTS.get(path)
    if spoken is not None:
        return spoken
    # Anthropic's clients send this header with every call.
    anthropic = path.startswith("/v1/messages") or b"anthropic-version" in headers
    return ANTHROPIC if anthropic else OPENAI
