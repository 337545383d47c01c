"""Facts of calls, and the places where a history changes."""

from typing import Any

import orjson

from seamlessflow.tryout.calls import call_facts, history_breaks, request_of
from seamlessflow.tryout.facts import HistoryBreak
from seamlessflow.tryout.relay import SentCall, WantedAnswer
from tests.builders.gateway.openai_chat import TOOL, parsed
from tests.builders.records import sessions

CHAT = "/v1/chat/completions"
HI: dict[str, Any] = {"role": "user", "content": "hi"}
HELLO: dict[str, Any] = {"role": "assistant", "content": "hello"}
GO: dict[str, Any] = {"role": "user", "content": "go on"}


def sent(path: str = CHAT, method: str = "POST", query: str = "", **body: Any) -> SentCall:
    whole = {"model": "m", "messages": [HI], **body}
    return SentCall("s", method, path, query, orjson.dumps(whole), repeats=0)


def answered(call: SentCall, status: int, answer: Any = None, **more: Any) -> SentCall:
    content = orjson.dumps(answer)
    return SentCall(
        call.session_id, call.method, call.path, "", call.body, 0, status, content, **more
    )


def test_a_call_has_its_parameters_tools_and_the_wanted_answer() -> None:
    call = answered(sent(tools=[TOOL], user="ann"), 200, wanted=WantedAnswer("lookup"))
    facts = call_facts(call)
    assert facts.parameters == ("model", "messages", "tools", "user")
    assert facts.unread == ("user",)
    assert (facts.tools, facts.called, facts.fault) == (("lookup",), "lookup", "")


def test_a_refusal_is_told_in_the_words_of_the_gateway() -> None:
    error = {"error": {"message": "must be a number", "param": "temperature"}}
    assert call_facts(answered(sent(), 400, error)).fault == "temperature: must be a number"
    of_google = {"error": {"message": "no such method", "status": "NOT_FOUND"}}
    assert call_facts(answered(sent(), 404, of_google)).fault == "no such method"
    assert call_facts(answered(sent(), 502, "away")).fault == '"away"'


def test_only_what_samples_is_a_request() -> None:
    assert request_of(sent()) is not None
    assert request_of(sent("/v1/models", "GET")) is None
    assert request_of(sent("/v1/embeddings")) is None
    assert request_of(sent(temperature="hot")) is None


def test_a_call_of_google_has_its_form_in_the_path() -> None:
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    body = orjson.dumps({"contents": contents})
    path = "/v1beta/models/m:streamGenerateContent"
    request = request_of(SentCall("s", "POST", path, "alt=sse", body, 0))
    assert request is not None
    assert (request.model, request.stream) == ("m", True)


def test_a_history_that_goes_on_has_no_break() -> None:
    started = [sessions.started("a", match_rule="root"), sessions.started("b", match_rule="extend")]
    requests = [parsed(messages=[HI]), parsed(messages=[HI, HELLO, GO])]
    assert history_breaks(started, requests) == []


def test_a_break_names_the_first_message_that_no_earlier_call_had() -> None:
    changed = {"role": "user", "content": "hi there"}
    started = [
        sessions.started("a", match_rule="root"),
        sessions.started("b", match_rule="extend"),
        sessions.started("c", match_rule="render", match_detail="edited_history"),
    ]
    requests = [
        parsed(messages=[HI]),
        parsed(messages=[HI, HELLO, GO]),
        parsed(messages=[HI, HELLO, changed]),
    ]
    assert history_breaks(started, requests) == [HistoryBreak(3, "edited_history", 3, "user")]


def test_a_break_among_turns_without_a_call_each_names_no_message() -> None:
    started = [sessions.started("a", match_rule="root"), sessions.started("b", match_rule="root")]
    assert history_breaks(started, [parsed(messages=[HI])]) == [HistoryBreak(2, "")]
