"""Errors of agents, told apart by whose doing they are."""

import httpx
import pytest
from google.genai import errors

from seamlessflow.producers.agents.failures import is_infrastructure_failure, is_refused_call

REQUEST = httpx.Request("POST", "http://gateway/v1/chat/completions")


class AnsweredWith(Exception):
    """Has a status, as the errors of OpenAI's client have."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_an_answer_of_a_busy_or_failing_endpoint_is_infrastructure(status: int) -> None:
    assert is_infrastructure_failure(AnsweredWith(status))


@pytest.mark.parametrize("status", [400, 404, 409, 413])
def test_an_answer_to_a_wrong_request_is_the_agents_doing(status: int) -> None:
    assert not is_infrastructure_failure(AnsweredWith(status))


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        *((AnsweredWith(400), True), (AnsweredWith(409), True)),
        *((AnsweredWith(429), False), (AnsweredWith(503), False), (KeyError("oops"), False)),
    ],
)
def test_a_refused_call_is_told_from_other_errors(error: Exception, refused: bool) -> None:
    assert is_refused_call(error) is refused


def test_google_s_client_has_the_status_in_another_member() -> None:
    assert is_infrastructure_failure(errors.ServerError(503, {}))
    assert is_infrastructure_failure(errors.ClientError(429, {}))
    assert not is_infrastructure_failure(errors.ClientError(400, {}))


def test_an_endpoint_that_cannot_be_reached_is_infrastructure() -> None:
    assert is_infrastructure_failure(httpx.ConnectError("refused", request=REQUEST))


def test_the_reason_behind_an_error_counts() -> None:
    error = RuntimeError("the model call failed")
    error.__cause__ = httpx.ReadTimeout("slow", request=REQUEST)
    assert is_infrastructure_failure(error)


def test_an_error_of_the_agents_own_is_not() -> None:
    assert not is_infrastructure_failure(KeyError("answer"))


def test_a_failing_endpoint_among_several_errors_counts() -> None:
    both = ExceptionGroup("calls", [KeyError("answer"), AnsweredWith(503)])
    assert is_infrastructure_failure(both)
    nested = BaseExceptionGroup("all", [ValueError(), ExceptionGroup("calls", [both])])
    assert is_infrastructure_failure(nested)
    behind = RuntimeError("the model call failed")
    behind.__context__ = nested
    assert is_infrastructure_failure(behind)
    assert not is_infrastructure_failure(ExceptionGroup("calls", [AnsweredWith(400)]))


def test_a_status_that_an_agent_raised_for_counts() -> None:
    answer = httpx.Response(503, request=REQUEST)
    assert is_infrastructure_failure(
        httpx.HTTPStatusError("busy", request=REQUEST, response=answer)
    )


def test_a_ring_of_errors_has_an_end() -> None:
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert not is_infrastructure_failure(first)
