"""A turn under a rule: it ends at one token, whatever its chunks, moves and lost workers."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.infra.rendering.completion import MessageDelta, ParsedMessage
from seamlessflow.infra.rendering.tool_calls import ToolCall
from seamlessflow.producers.rollout.control.contract import TurnStop
from seamlessflow.producers.rollout.control.controlled import ControlledTurn, TokenRows
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.producers.rollout.turns.dispatch import Dispatch
from seamlessflow.schemas.records import (
    Sampling,
    TurnCompleted,
    TurnControl,
    TurnInterrupted,
    TurnProgressed,
)
from seamlessflow.schemas.tokens import pack, unpack
from tests.builders.rollout.completions import Letters, chunk, codes
from tests.builders.rollout.controlled import (
    ENDS,
    MARKS,
    LateState,
    SampledText,
    asked,
    control,
    end_of,
)

REPEATS = control("repetition", period=2, times=3)
GUESSES = control("confidence", floor=2.0, tail=2.9, spike=0.5)


def text(letters: str, reason: Any = "length") -> SampledText:
    return SampledText(codes(letters), [20] * len(letters), reason)


def ended(record: TurnCompleted) -> tuple[str, str, str, int, str]:
    """Return text, finish reason, and the verdict with its place and what it ends."""
    letters = "".join(map(chr, unpack(record.token_ids)))
    return letters, record.finish_reason, record.control, record.control_at, record.control_ends


def test_a_turn_ends_at_the_token_of_the_verdict_and_the_rest_is_cut() -> None:
    record = end_of(text("xxababababab"), asked(REPEATS))
    verdict = ("repetition: repeats", 8, "turn")
    assert ended(record) == ("xxababab", "length", *verdict)
    assert record.message == b'{"content":"xxababab","role":"assistant"}'


def test_the_log_probs_of_the_kept_tokens_are_those_of_the_engine() -> None:
    dispatch = Dispatch(asked(REPEATS), Letters(), 0, ENDS, _controlled(REPEATS))
    record = dispatch.advance([chunk(0, codes("abababab"))], 1)
    assert isinstance(record, TurnCompleted)
    assert record.logprobs == chunk(0, codes("ababab")).logprobs
    assert [span.start for span in record.spans] == [0]


def test_a_turn_without_a_verdict_ends_as_it_would_without_a_rule() -> None:
    record = end_of(text("abcdefgh", "stop"), asked(REPEATS))
    assert ended(record) == ("abcdefgh", "stop", "", 0, "")


def test_the_token_that_ends_a_turn_by_itself_is_not_judged() -> None:
    stopped = SampledText([*codes("<abc"), 0], [20] * 5, "stop")
    record = end_of(stopped, asked(control("budget", tokens=3)))
    assert (record.finish_reason, record.control) == ("stop", "")


def test_a_stop_string_wins_over_a_verdict_behind_it_and_at_its_token() -> None:
    sampling = Sampling(max_tokens=100, stop=("ba",))
    record = end_of(text("xababababab"), asked(REPEATS, sampling=sampling))
    assert ended(record)[1:] == ("stop", "", 0, "")
    at_once = Sampling(max_tokens=100, stop=("ababab",))
    record = end_of(text("xababababab"), asked(REPEATS, sampling=at_once))
    assert (record.finish_reason, record.stop_sequence, record.control) == ("stop", "ababab", "")


def test_a_call_that_is_cut_short_is_no_end_by_tool_calls() -> None:
    calls = CompletionParts()
    dispatch = Dispatch(asked(REPEATS), calls, 0, ENDS, _controlled(REPEATS))
    record = dispatch.advance([chunk(0, codes("cababababc"), "stop")], 1)
    assert isinstance(record, TurnCompleted)
    assert (record.finish_reason, record.control_at) == ("length", 7)
    assert calls.fed == codes("cababab")
    message = orjson.loads(record.message)
    assert len(message["tool_calls"]) == 1


class CompletionParts(Letters):
    """Every `c` is a tool call; `fed` has all tokens that were parsed."""

    def __init__(self) -> None:
        super().__init__()
        self.fed: list[int] = []

    def feed(self, ids: bytes) -> MessageDelta:
        self.fed += unpack(ids)
        return super().feed(ids)

    @property
    def message(self) -> ParsedMessage:
        calls = self.fed.count(ord("c"))
        return ParsedMessage(tool_calls=(ToolCall("look", "{}"),) * calls)


def test_an_exempt_turn_goes_on_and_its_verdict_is_recorded() -> None:
    rule = control("repetition", exempt=True, period=2, times=3)
    record = end_of(text("ababababcdef", "stop"), asked(rule), moves=[9])
    assert ended(record) == ("ababababcdef", "stop", "repetition: repeats", 6, "turn")


def test_only_the_asked_log_probs_are_recorded_beside_those_that_the_rule_sees() -> None:
    sampling = Sampling(max_tokens=100, top_logprobs=2)
    dispatch = Dispatch(asked(GUESSES, sampling=sampling), Letters(), 0, ENDS, _controlled(GUESSES))
    record = dispatch.advance([text("abc").chunk(0, 3, 20)], 1)
    assert isinstance(record, TurnCompleted)
    assert [tensor.shape for tensor in record.tensors] == [(3, 2), (3, 2)]
    assert unpack(record.tensors[0].data or b"") == [0, 1] * 3


def test_a_turn_that_may_be_stopped_wakes_the_loop_with_every_chunk() -> None:
    assert Dispatch(asked(REPEATS), Letters(), 0, ENDS, _controlled(REPEATS)).urgent
    exempt = control("repetition", exempt=True)
    assert not Dispatch(asked(exempt), Letters(), 0, ENDS, _controlled(exempt)).urgent


def test_thinking_is_counted_from_its_mark_on_also_one_in_the_prompt() -> None:
    rule = control("budget", tokens=3)
    letters = text("a<bcd>efg<hij")
    assert ended(end_of(letters, asked(rule)))[0] == "a<bcd>efg<h"
    assert ended(end_of(letters, asked(rule), moves=[3, 8]))[0] == "a<bcd>efg<h"
    opened = asked(rule, prompt_ids=pack(codes("ab<")))
    assert ended(end_of(letters, opened, moves=[1, 3]))[0] == "a<bcd"


@pytest.mark.parametrize("rule", [REPEATS, GUESSES])
def test_records_carry_the_state_behind_their_last_token(rule: TurnControl) -> None:
    dispatch = Dispatch(asked(rule), Letters(), 0, ENDS, _controlled(rule))
    progressed = dispatch.advance([text("abcdef").chunk(0, 3, 20 if rule is GUESSES else 0)], 2_000)
    assert isinstance(progressed, TurnProgressed)
    handed_back = dispatch.end([text("abcdef").chunk(3, 4, 20 if rule is GUESSES else 0)], "x", 1)
    assert isinstance(handed_back, TurnInterrupted)
    states = [progressed.control_state, handed_back.control_state]
    for count, state in zip((3, 4), states, strict=True):
        alone = _controlled(rule)
        rows = text("abcdef").chunk(0, count, 20)
        alone.feed(TokenRows(rows.token_ids, rows.logprobs, rows.top_logprobs, 20), 0)
        assert state == alone.state


RULES = [
    REPEATS,
    GUESSES,
    control("budget", tokens=2),
    control("repetition", exempt=True, period=2, times=3),
    control("confidence", exempt=True, floor=2.5),
]
PLACES = st.sets(st.integers(1, 20), max_size=8)


@st.composite
def sampled_texts(draw: st.DrawFn) -> SampledText:
    letters = draw(st.lists(st.sampled_from("aaabbb<>"), min_size=8, max_size=30))
    counts = st.sampled_from([2, 3, 5, 8, 15, 20])
    evens = draw(st.lists(counts, min_size=len(letters), max_size=len(letters)))
    return SampledText(codes("".join(letters)), evens, draw(st.sampled_from(["length", "stop"])))


@settings(max_examples=400)
@given(
    sampled=sampled_texts(),
    rule=st.sampled_from(RULES),
    stops=st.sampled_from([(), ("bb",), ("ab", "aaa")]),
    cuts=PLACES,
    moves=PLACES,
    lost=PLACES,
)
def test_any_chunks_moves_and_lost_workers_give_the_same_end(
    sampled: SampledText,
    rule: TurnControl,
    stops: tuple[str, ...],
    cuts: set[int],
    moves: set[int],
    lost: set[int],
) -> None:
    request = asked(rule, sampling=Sampling(max_tokens=100, stop=stops))
    one_by_one = end_of(sampled, request, range(30))
    again = end_of(sampled, request, cuts, moves, lost)
    assert ended(again) == ended(one_by_one)
    assert again.message == one_by_one.message


def test_a_state_that_is_one_token_late_is_found() -> None:
    sampled = text("xababababab")
    right = end_of(sampled, asked(REPEATS))
    assert ended(end_of(sampled, asked(REPEATS), moves=[5])) == ended(right)
    assert ended(end_of(sampled, asked(REPEATS), moves=[5], turn=LateState)) != ended(right)


def test_a_continuation_whose_state_is_not_recorded_goes_on_without_the_rule() -> None:
    request = asked(REPEATS, completion_ids=pack(codes("ab")), dispatch=2)
    record = end_of(SampledText(codes("abababab"), [20] * 8), request)
    assert (record.control, record.control_error[:8]) == ("", "no state")


class Failing:
    """A rule of the user's own that returns something else at the third token."""

    top = 0

    def __init__(self, third: Callable[[], Any]) -> None:
        self.third = third

    def begin(self, turn: Any) -> int:
        return 0

    def step(self, state: int, token: Any) -> Any:
        return (state + 1, None) if state < 2 else self.third()


def _raises() -> Any:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("third", "error"),
    [
        (_raises, "RuntimeError: no idea"),
        (lambda: None, "returned None"),
        (lambda: (3, TurnStop("")), "not a TurnStop with a reason"),
        (lambda: (3, TurnStop("why", "run")), "ends 'run'"),  # type: ignore[arg-type]
        (lambda: ("x" * 5000, None), "a state of 5002 bytes"),
        (lambda: ({1, 2}, None), "not JSON"),
        (lambda: ([float("nan")], None), "the state [nan], not one that JSON keeps"),
        (lambda: ((1, 2), None), "the state (1, 2), not one that JSON keeps"),
    ],
)
def test_an_error_of_a_rule_lets_the_turn_go_on_without_it(
    third: Callable[[], Any], error: str
) -> None:
    rule = TurnControl(name="mine:rule", settings=b"{}", sha256="abc")
    request = asked(rule)
    controlled = ControlledTurn(request, Failing(third), MARKS, ENDS)
    dispatch = Dispatch(request, Letters(), 0, ENDS, controlled)
    progressed = dispatch.advance([chunk(0, codes("abcd"))], 2_000)
    assert isinstance(progressed, TurnProgressed)
    assert error in orjson.loads(progressed.control_state or b"")[2]
    record = dispatch.advance([chunk(4, codes("ef"), "stop")], 2_001)
    assert isinstance(record, TurnCompleted)
    assert (record.finish_reason, record.control) == ("stop", "")
    assert error in record.control_error


def _controlled(rule: TurnControl) -> ControlledTurn:
    made = UsedRules().controlled(asked(rule), MARKS, ENDS)
    assert made is not None
    return made


class AtOnce:
    """A rule of the user's own that ends each turn at its first token."""

    top = 0

    def begin(self, turn: Any) -> None:
        return None

    def step(self, state: None, token: Any) -> tuple[None, TurnStop | None]:
        return None, TurnStop("at once", "session")


@pytest.mark.parametrize("exempt", [False, True])
def test_a_rule_may_end_a_turn_at_its_first_token_also_on_the_worker_that_it_moves_to(
    exempt: bool,
) -> None:
    rule = TurnControl(name="mine:rule", settings=b"{}", sha256="abc", exempt=exempt)
    request = asked(rule)
    first = Dispatch(request, Letters(), 0, ENDS, ControlledTurn(request, AtOnce(), MARKS, ENDS))
    moved = first.end([], "preempted", 1)
    assert isinstance(moved, TurnInterrupted) and not moved.token_ids
    again = asked(rule, dispatch=2, control_state=moved.control_state)
    second = Dispatch(again, Letters(), 0, ENDS, ControlledTurn(again, AtOnce(), MARKS, ENDS))
    record = second.advance([chunk(0, codes("abcd"), "length")], 1)
    assert isinstance(record, TurnCompleted)
    assert ended(record) == (
        "abcd" if exempt else "a",
        "length",
        "mine:rule: at once",
        1,
        "session",
    )
