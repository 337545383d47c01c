"""Rules by which recorded turns would have been matched by another strictness or renderer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from seamlessflow.consumers.trajectories.decisions.context import Context
from seamlessflow.consumers.trajectories.matching.match import PromptRenderer, RequestMessages
from seamlessflow.consumers.trajectories.matching.recorded import MatchSettings
from seamlessflow.consumers.trajectories.sessions.message_keys import STRICTNESSES, Strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings
from seamlessflow.recorded.merge.match_trial import NOT_RECORDED, REFUSED, MatchTrial
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import tool_call_id
from seamlessflow.schemas.records import Record
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import closed, finalized
from tests.builders.trajectories.conversation import ASKED, Conversation, calling, result
from tests.builders.trajectories.decisions import WEIGHTS, OneTokenAMessage, context, fleet_with

Row = tuple[str, str, int, int, int]
POLICY = replace(WEIGHTS, renderer=RendererSettings("qwen3").to_json())
FIRST = ("root", "root", 1, 0, 0)


class RecordedConversation(Conversation):
    """A conversation that keeps its events."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        super().__init__()

    def apply(self, *events: Record) -> "RecordedConversation":
        self.log += events
        super().apply(*events)
        return self

    def _context(self, **around: Any) -> Context:
        return context(fleet_with("w", weights=POLICY), **around)

    @property
    def starts(self) -> list[r.TurnStarted]:
        return [event for event in self.log if isinstance(event, r.TurnStarted)]


def conversation(repeated: bytes, answer: bytes, **more: Any) -> RecordedConversation:
    """Return a session of two turns, in the second of which the agent repeats the answer so."""
    made = RecordedConversation()
    made.ask("a", *ASKED, **more)
    made.answer("a", ids(10, 11, 0), answer)
    made.ask("b", *ASKED, repeated, message("user", "go on"), **more)
    made.answer("b", ids(20, 21, 0), message("assistant", "done"))
    return made


def rows(log: Sequence[Record], trial: MatchTrial) -> list[Row]:
    fold = Refold(LoggedPartition(5), rewrite=trial.rewrite, strictness=trial.strictness)
    ended = [fold.apply(record, at) for at, record in enumerate([*log, closed(), finalized()])]
    assert ended[-1] is not None
    return list(trial.take("s").rows())


def called(arguments: str, turn_id: str = "a") -> bytes:
    function = {"name": "read", "arguments": arguments}
    call = {"id": tool_call_id(turn_id, 0), "type": "function", "function": function}
    return message("assistant", None, tool_calls=[call])


ANSWER = message("assistant", "first")
EDITED = message("assistant", "first", reasoning_content="of another model")
SPELT = (called('{"a": 1}'), called('{"a":1}'))
COMPLETED = (called('{"a": 1}'), called('{"a": 1, "b": 2}'))


def test_an_answer_that_comes_back_unchanged_would_be_extended_by_every_strictness() -> None:
    log = conversation(ANSWER, ANSWER).log
    for tried in STRICTNESSES:
        assert rows(log, MatchTrial(tried)) == [("extend", "extend", 1, 5, 5), FIRST]


@pytest.mark.parametrize(
    ("answer", "repeated", "differs"),
    [(*SPELT, ("exact",)), (ANSWER, EDITED, ("exact",))],
)
def test_a_stricter_comparison_would_render_what_came_back_otherwise(
    answer: bytes, repeated: bytes, differs: tuple[str, ...]
) -> None:
    made = conversation(repeated, answer)
    assert made.starts[1].answer_differs == differs
    assert rows(made.log, MatchTrial("exact")) == [("extend", "render", 1, 5, 0), FIRST]
    assert rows(made.log, MatchTrial("content")) == [("extend", "extend", 1, 5, 5), FIRST]


@pytest.mark.parametrize("tried", ["content", "ids"])
def test_a_looser_comparison_would_extend_what_was_rendered(tried: Strictness) -> None:
    log = conversation(COMPLETED[1], COMPLETED[0]).log
    assert rows(log, MatchTrial("arguments")) == [("root", "root", 2, 0, 0)]
    assert rows(log, MatchTrial(tried)) == [("root", "extend", 1, 0, 5), FIRST]


def test_a_turn_behind_one_that_would_not_be_found_continues_the_one_before() -> None:
    made = RecordedConversation()
    made.ask("a", *ASKED)
    first = made.answer("a", ids(10, 0), calling("a"))
    made.ask("b", *ASKED, first, result("a"))
    made.answer("b", ids(20, 0), SPELT[0])
    made.ask("c", *ASKED, first, result("a"), SPELT[1], message("user", "go on"))
    made.answer("c", ids(30, 0), ANSWER)
    assert rows(made.log, MatchTrial("exact")) == [("extend", "extend", 2, 11, 8), FIRST]


def test_another_sample_of_a_prompt_stays_one() -> None:
    made = conversation(ANSWER, ANSWER)
    made.ask("c", *ASKED)
    same = ("same", "same", 1, 2, 2)
    assert rows(made.log, MatchTrial("exact")) == [("extend", "extend", 1, 5, 5), FIRST, same]


def test_settings_are_recorded_when_they_change_and_template_arguments_always() -> None:
    made = conversation(ANSWER, ANSWER, template_args=b'{"enable_thinking":false}')
    first, second = made.starts
    assert first.template_args == second.template_args == b'{"enable_thinking":false}'
    assert orjson.loads(first.matching or b"") == {
        "renderer": {
            "control_tokens": "text",
            "name": "qwen3",
            "options": {},
            "thinking_retention": None,
        },
        "strictness": "arguments",
        "tokenizer_hash": "t",
    }
    assert second.matching == b""


def test_turns_of_earlier_releases_are_not_recorded() -> None:
    made = conversation(ANSWER, ANSWER)
    old = [
        replace(record, matching=None) if isinstance(record, r.TurnStarted) else record
        for record in made.log
    ]
    counted = [("extend", NOT_RECORDED, 1, 5, 5), ("root", NOT_RECORDED, 1, 0, 0)]
    assert rows(old, MatchTrial("exact")) == counted


class Forgetful(OneTokenAMessage):
    """A renderer whose template changes earlier tokens, so that it bridges nothing."""

    def bridge(
        self,
        prompt: bytes,
        completion: bytes,
        new: RequestMessages,
        tools: RequestMessages | None = None,
    ) -> None:
        return None


def tried(renderer: PromptRenderer) -> MatchTrial:
    return MatchTrial(renderer=lambda started, recorded: renderer)


def test_the_recorded_renderer_matches_as_it_did() -> None:
    log = conversation(SPELT[1], SPELT[0]).log
    assert rows(log, tried(OneTokenAMessage())) == [("extend", "extend", 1, 5, 5), FIRST]


def test_a_renderer_that_cannot_bridge_would_render_anew() -> None:
    log = conversation(ANSWER, ANSWER).log
    assert rows(log, tried(Forgetful())) == [("extend", "root", 1, 5, 0), FIRST]


def test_a_renderer_that_refuses_is_counted() -> None:
    def refuse(started: r.TurnStarted, recorded: MatchSettings) -> PromptRenderer:
        raise RendererError("other", "no such template")

    log = conversation(ANSWER, ANSWER).log
    counted = [("extend", REFUSED, 1, 5, 0), ("root", REFUSED, 1, 0, 0)]
    assert rows(log, MatchTrial(renderer=refuse)) == counted
