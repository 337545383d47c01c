"""Routes of paths, and the dialect in which each is answered."""

import pytest

from seamlessflow.producers.gateway.routes import (
    ANTHROPIC,
    GOOGLE,
    OPENAI,
    dialect_of,
    dialect_of_call,
    meant_paths,
    model_in,
    route_of,
)


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1beta/models/m:generateContent", "/v1beta/models/*:generateContent"),
        ("/v1/models/m:generateContent", "/v1beta/models/*:generateContent"),
        ("/v1/models/a:b:streamGenerateContent", "/v1beta/models/*:streamGenerateContent"),
        ("/v1/models/org/m:countTokens", "/v1beta/models/*:countTokens"),
        ("/v1beta/models/m:embedContent", "/v1beta/models/m:embedContent"),
        ("/v1/models/m:predict", "/v1/models/m:predict"),
        ("/v1/models/", "/v1/models/"),
        ("/v1/models/m", "/v1/models/*"),
        ("/v1/messages", "/v1/messages"),
    ],
)
def test_a_path_of_a_model_has_a_route(path: str, route: str) -> None:
    assert route_of(path, "POST") == route


def test_the_name_of_a_model_may_have_a_colon() -> None:
    assert route_of("/v1/models/qwen:7b", "GET") == "/v1/models/*"


@pytest.mark.parametrize("session", ["", "/sessions/s"])
@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/v1/v1/messages", "/v1/messages"),
        ("/v1/v1beta/models/m:generateContent", "/v1beta/models/m:generateContent"),
        ("/v1beta/v1/messages", "/v1/messages"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/models/m:generateContent", "/v1beta/models/m:generateContent"),
        ("/v1/responses/", "/v1/responses"),
        ("//v1//chat/completions", "/v1/chat/completions"),
        ("/chat/completions/", "/v1/chat/completions"),
    ],
)
def test_a_path_close_to_another_means_that_one(session: str, path: str, meant: str) -> None:
    assert session + meant in list(meant_paths(session + path))


@pytest.mark.parametrize("path", ["/", "", "/v1", "/sessions", "/sessions/s", "///"])
def test_a_short_path_means_little(path: str) -> None:
    assert all(meant.startswith("/") for meant in meant_paths(path))


@pytest.mark.parametrize("session", ["", "/sessions/models"])
def test_the_path_names_the_model(session: str) -> None:
    assert model_in(f"{session}/v1beta/models/m") == "m"


@pytest.mark.parametrize(
    ("path", "alt", "kind"),
    [
        ("/v1/models/m:generateContent", b"sse", b"text/event-stream; charset=utf-8"),
        ("/v1/models/m:streamGenerateContent", b"sse", b"text/event-stream; charset=utf-8"),
        ("/v1/models/m:streamGenerateContent", b"", b"application/json"),
    ],
)
def test_path_and_parameter_name_the_form_of_the_answer(path: str, alt: bytes, kind: bytes) -> None:
    spoken = dialect_of_call(GOOGLE, path, {b"alt": alt}.__getitem__)
    request = spoken.parse(b'{"contents":[{"parts":[{"text":"hi"}]}]}', 1)
    assert (request.model, request.stream) == ("m", "stream" in path)
    assert spoken.stream_type == kind
    assert dialect_of_call(OPENAI, path, {b"alt": alt}.__getitem__) is OPENAI


@pytest.mark.parametrize("session", ["", "/sessions/s"])
def test_a_method_of_google_below_no_version_means_its_beta(session: str) -> None:
    meant = list(meant_paths(f"{session}/models/m:generateContent"))
    assert meant[1] == f"{session}/v1beta/models/m:generateContent"


@pytest.mark.parametrize("session", ["", "/sessions/*"])
@pytest.mark.parametrize(
    "path",
    [
        "/models/m:generateContent",
        "/models/m:streamGenerateContent",
        "/v1/v1beta/models/m:countTokens",
        "/v1beta/models/m:embedContent",
    ],
)
def test_errors_of_google_s_paths_are_in_its_shape_also_where_they_are_unknown(
    session: str, path: str
) -> None:
    assert dialect_of(session + path, {}) is GOOGLE


def test_errors_are_told_in_the_client_s_dialect() -> None:
    assert dialect_of("/sessions/*/models", {b"x-goog-api-key": b"k"}) is GOOGLE
    assert dialect_of("/v1beta/models/*", {}) is GOOGLE
    assert dialect_of("/v1/models", {b"x-goog-api-client": b"google-genai-sdk"}) is GOOGLE
    assert dialect_of("/v1/models", {b"anthropic-version": b"1"}) is ANTHROPIC
    assert dialect_of("/v1/models", {}) is OPENAI
