"""The gateway's routes, and the dialect that is spoken at each path.

A new dialect is a class and a line here.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from seamlessflow.producers.gateway.dialects import (
    openai_completions,
    openai_shape,
    vllm_generate,
)
from seamlessflow.producers.gateway.dialects.anthropic_messages import request as messages_request
from seamlessflow.producers.gateway.dialects.anthropic_messages import response as messages_response
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import Dialect
from seamlessflow.producers.gateway.dialects.google_content import request as content_request
from seamlessflow.producers.gateway.dialects.google_content import response as content_response
from seamlessflow.producers.gateway.dialects.openai_chat import request as chat_request
from seamlessflow.producers.gateway.dialects.openai_chat import response as chat_response
from seamlessflow.producers.gateway.dialects.openai_responses import request as responses_request
from seamlessflow.producers.gateway.dialects.openai_responses import response as responses_response
from seamlessflow.producers.gateway.exchange import EVENT_STREAM, JSON


class _ServerSent:
    """A dialect that streams server-sent events. Its clients skip comments in them."""

    stream_type = EVENT_STREAM
    waiting = openai_shape.KEEP_ALIVE


# Functions of a class would be bound as methods, hence `staticmethod`.
class OpenAiChat(_ServerSent):
    """Dialect of `POST /v1/chat/completions`."""

    parse = staticmethod(chat_request.parse)
    completion = staticmethod(chat_response.completion)
    events = staticmethod(chat_response.ChatEvents)
    error_body = staticmethod(openai_shape.error_body)


class OpenAiCompletions(_ServerSent):
    """Dialect of `POST /v1/completions`."""

    parse = staticmethod(openai_completions.parse)
    completion = staticmethod(openai_completions.completion)
    events = staticmethod(openai_completions.CompletionEvents)
    error_body = staticmethod(openai_shape.error_body)


class VllmGenerate(_ServerSent):
    """Dialect of `POST /inference/v1/generate`."""

    parse = staticmethod(vllm_generate.parse)
    completion = staticmethod(vllm_generate.completion)
    events = staticmethod(vllm_generate.GenerateEvents)
    error_body = staticmethod(openai_shape.error_body)


class OpenAiResponses(_ServerSent):
    """Dialect of `POST /v1/responses`."""

    parse = staticmethod(responses_request.parse)
    completion = staticmethod(responses_response.completion)
    events = staticmethod(responses_response.ResponseEvents)
    error_body = staticmethod(openai_shape.error_body)


class AnthropicMessages(_ServerSent):
    """Dialect of `POST /v1/messages`."""

    parse = staticmethod(messages_request.parse)
    completion = staticmethod(messages_response.completion)
    events = staticmethod(messages_response.MessageEvents)
    error_body = staticmethod(messages_response.error_body)


class GoogleContent:
    """Dialect of `POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`.

    The path names the model and the answer's form, so each call has its own dialect.
    """

    waiting = content_response.WAITING
    completion = staticmethod(content_response.completion)
    events = staticmethod(content_response.ContentEvents)
    error_body = staticmethod(content_response.error_body)

    def __init__(self, model: str, form: content_request.AnswerForm) -> None:
        self._model = model
        self._form = form
        self.stream_type = JSON if form == "array" else EVENT_STREAM

    def parse(self, body: bytes, max_choices: int) -> CanonicalRequest:
        """Return the request in a body. Raises `ApiError` (400)."""
        return content_request.parse(body, max_choices, self._model, self._form)


OPENAI: Dialect = OpenAiChat()
ANTHROPIC: Dialect = AnthropicMessages()
GOOGLE: Dialect = GoogleContent("*", "whole")
GOOGLE_MODELS = "/v1beta/models/"
_MODELS = "/v1/models/"
_VERSIONS = ("v1", "v1beta")
_WHOLE = ":generateContent"
_STREAMED = ":streamGenerateContent"
_COUNTED = ":countTokens"
_GOOGLE_HEADERS = frozenset({b"x-goog-api-client", b"x-goog-api-key"})

DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": OPENAI,
    "/v1/completions": OpenAiCompletions(),
    "/inference/v1/generate": VllmGenerate(),
    "/v1/responses": OpenAiResponses(),
    "/v1/messages": ANTHROPIC,
    f"{GOOGLE_MODELS}*{_WHOLE}": GOOGLE,
    f"{GOOGLE_MODELS}*{_STREAMED}": GoogleContent("*", "events"),
}


class Route(NamedTuple):
    """A route: its HTTP method, its name in metrics, and the meaning of a call."""

    method: str
    name: str
    meaning: str


ROUTES: Mapping[str, Route] = {
    **{
        path: Route("POST", path, "Samples a turn; needs a session's key or an API key")
        for path in DIALECTS
    },
    "/v1/messages/count_tokens": Route(
        "POST", "count_tokens", "Counts the tokens of a prompt of Anthropic's form"
    ),
    f"{GOOGLE_MODELS}*{_COUNTED}": Route(
        "POST", "count_tokens", "Counts the tokens of a prompt of Google's form"
    ),
    "/v1/models": Route("GET", "models", "Lists the models; needs any key"),
    "/v1beta/models": Route("GET", "models", "Lists the models in Google's form; needs any key"),
    "/v1/models/*": Route("GET", "model", "Shows a model; needs any key"),
    "/v1beta/models/*": Route("GET", "model", "Shows a model in Google's form; needs any key"),
    "/sessions": Route("POST", "open", "Opens a session; needs the admin key"),
    "/sessions/*": Route("GET", "describe", "Shows a session; needs its key or the admin key"),
    "/sessions/*/chains": Route(
        "GET", "chains", "Gives a session's tokens to train on; needs its key or the admin key"
    ),
    "/sessions/*/reward": Route("POST", "reward", "Rewards a session; needs the admin key"),
    "/sessions/*/close": Route("POST", "close", "Closes a session; needs the admin key"),
    "/health": Route("GET", "health", "Answers as long as the process runs"),
    "/ready": Route("GET", "ready", "Answers 503 until calls can be taken"),
    "/metrics": Route("GET", "metrics", "Metrics in the Prometheus text format"),
}
"""Routes by path. `*` stands for a model or a session."""


def dialect_of_call(dialect: Dialect, path: str, parameter: Callable[[bytes], bytes]) -> Dialect:
    """Return one call's dialect. Its path or parameters may say more than its route."""
    if not isinstance(dialect, GoogleContent):
        return dialect
    model, _, method = model_in(path).rpartition(":")
    if f":{method}" == _WHOLE:
        return GoogleContent(model, "whole")
    return GoogleContent(model, "events" if parameter(b"alt") == b"sse" else "array")


def meant_paths(path: str) -> Iterator[str]:
    """Yield paths that a client may have meant by an unknown path, likeliest first.

    Some clients put `/v1` or `/v1beta` behind the base URL, others do not. Users may put a slash
    there.
    """
    words = [word for word in path.split("/") if word]
    named = words[:2] if words[:1] == ["sessions"] else []
    words = words[len(named) :]
    while words[:1] and words[0] in _VERSIONS and words[1:2] and words[1] in _VERSIONS:
        words = words[1:]
    likely = _VERSIONS[::-1] if _is_googles(path) else _VERSIONS
    versions = (
        [()] if words[:1] and words[0] in _VERSIONS else [(), *((version,) for version in likely)]
    )
    for version in versions:
        yield "/" + "/".join([*named, *version, *words])


def model_in(path: str) -> str:
    """Return the text after `/models/` in a path: a model, maybe with a method."""
    return path.rpartition("/models/")[2]


def route_of(path: str, http_method: str) -> str:
    """Return the route for a path that names no session. `*` stands for a model.

    Google's client calls a model's methods below `/v1` or `/v1beta`, depending on its version. A
    method that no model has here is no route.
    """
    for prefix in (GOOGLE_MODELS, _MODELS):
        if path.startswith(prefix) and path != prefix:
            method = next(
                (suffix for suffix in (_WHOLE, _STREAMED, _COUNTED) if path.endswith(suffix)), ""
            )
            if http_method == "POST" and not method and ":" in path:
                return path
            return f"{GOOGLE_MODELS if method else prefix}*{method}"
    return path


def dialect_of(path: str, headers: Mapping[bytes, bytes]) -> Dialect:
    """Return the dialect whose error format this call expects.

    Also works for paths that belong to no dialect, such as `/v1/models`.
    """
    spoken = DIALECTS.get(path)
    if spoken is not None:
        return spoken
    if _is_googles(path) or not _GOOGLE_HEADERS.isdisjoint(headers):
        return GOOGLE
    # Anthropic's clients send this header with every call.
    anthropic = path.startswith("/v1/messages") or b"anthropic-version" in headers
    return ANTHROPIC if anthropic else OPENAI


def _is_googles(path: str) -> bool:
    """Return whether a path, known or not, is Google's, by its version or its method."""
    return "/v1beta/" in path or path.endswith((_WHOLE, _STREAMED, _COUNTED))
