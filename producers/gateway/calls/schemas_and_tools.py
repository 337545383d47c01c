"""Answers by a JSON schema beside tools, in all dialects alike. Pure.

An engine that samples by a schema can sample no call. So a forced call goes without the schema, as
at the vendors, where it binds texts alone; and a schema beside tools that the model may call or not
is refused.
"""

from collections.abc import Mapping
from dataclasses import replace

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.errors import ApiError

SCHEMA_PARAMETERS: Mapping[str, str] = {
    "openai.chat": "response_format",
    "openai.responses": "text.format",
    "anthropic.messages": "output_config.format",
    "google.content": "generationConfig.responseSchema",
}
"""Parameter of a schema, by dialect."""
_VENDORS_WORDS: Mapping[str, str] = {
    "google.content": "Function calling with a response mime type: 'application/json' is "
    "unsupported"
}
_REMEDY = (
    "force a call (the schema then does not bind that answer), or let the model call none (the "
    "answer then obeys the schema)"
)


def with_bound_schema(request: CanonicalRequest) -> CanonicalRequest:
    """Return the request without a schema that does not bind its answer. Raises `ApiError`."""
    if request.sampling.json_schema is None or not request.tools or request.tool_choice == "none":
        return request
    if request.tool_choice != "auto":
        return replace(request, sampling=replace(request.sampling, json_schema=None))
    param = SCHEMA_PARAMETERS.get(request.dialect)
    words = f"{param} is not supported with tools that the model may call"
    message = f"{_VENDORS_WORDS.get(request.dialect, words)}: {_REMEDY}"
    raise ApiError(400, message, code="unsupported_value", param=param)
