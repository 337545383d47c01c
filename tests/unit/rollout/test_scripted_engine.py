"""Answers of the scripted engine."""

import contextlib

import pytest

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid
from seamlessflow.producers.rollout.scripted_engine import Script, ScriptedEngine
from tests.builders.engines.broken import BreakingScript
from tests.builders.rollout.generation import Generation, as_bytes
from tests.waiting import until

STOP = 99
PROMPT = [1, 2, 3]


@pytest.mark.parametrize(
    ("length", "stops", "max_tokens", "completion", "reason"),
    [
        (4, (STOP,), 100, [11, 12, 13, 11, STOP], "stop"),
        (4, (STOP,), 5, [11, 12, 13, 11, STOP], "stop"),
        (4, (STOP,), 4, [11, 12, 13, 11], "length"),
        (2, (), 5, [11, 12, 13, 11, 12], "length"),
        (0, (STOP,), 5, [STOP], "stop"),
    ],
)
def test_the_pattern_then_a_stop_token(
    length: int, stops: tuple[int, ...], max_tokens: int, completion: list[int], reason: str
) -> None:
    script = Script(as_bytes([11, 12, 13]), length)
    with contextlib.closing(ScriptedEngine(script)) as engine:
        done = Generation(engine, PROMPT, SamplingParams(max_tokens, stop_token_ids=stops))
        assert done.finish() == reason
        assert done.completion == completion
        assert len(done.chunks) == 1


def test_a_script_may_be_chosen_for_each_request() -> None:
    scripts = {"a": Script(as_bytes([11, 12]), 2), "b": Script(as_bytes([13]), 1)}
    usual = Script(as_bytes([14]), 1)

    def choose(prompt: bytes, sampling: SamplingParams) -> Script:
        assert prompt == as_bytes(PROMPT)
        return scripts[sampling.session]

    with contextlib.closing(ScriptedEngine(usual, choose=choose)) as engine:
        for session, completion in (("a", [11, 12, STOP]), ("b", [13, STOP])):
            sampling = SamplingParams(
                9, stop_token_ids=(STOP,), session=session, json_schema='{"type": "object"}'
            )
            done = Generation(engine, PROMPT, sampling)
            assert done.finish() == "stop"
            assert done.completion == completion


def test_a_speed_spreads_the_tokens() -> None:
    script = Script(as_bytes([11]), 20, tokens_per_second=400.0)
    with contextlib.closing(ScriptedEngine(script)) as engine:
        done = Generation(engine, PROMPT, SamplingParams(100, stop_token_ids=(STOP,)))
        assert done.finish() == "stop"
        assert done.completion == [11] * 20 + [STOP]
        assert len(done.chunks) > 2


def test_more_requests_than_places_wait() -> None:
    script = Script(as_bytes([11]), 5)
    with contextlib.closing(ScriptedEngine(script, max_running=2)) as engine:
        engine.pause("keep")
        all_of_them = [Generation(engine, PROMPT, SamplingParams(3), f"r{i}") for i in range(5)]
        until(lambda: (engine.health().running, engine.health().waiting) == (2, 3))
        engine.resume()
        assert {each.finish() for each in all_of_them} == {"length"}


def test_it_breaks_where_the_script_says() -> None:
    script = BreakingScript(as_bytes([11]), 50, tokens_per_second=2_000.0, breaks_at=10)
    with contextlib.closing(ScriptedEngine(script)) as engine:
        broken = Generation(engine, PROMPT, SamplingParams(40))
        assert broken.finish() == "abort"
        assert len(broken.completion) <= 10
        assert "ArithmeticError" in str(engine.health().error)
        with pytest.raises(EngineStateInvalid):
            engine.resume()


def test_a_pattern_must_be_token_ids() -> None:
    for wrong in (b"", b"123"):
        with pytest.raises(ValueError, match="pattern"):
            Script(wrong, 5)
