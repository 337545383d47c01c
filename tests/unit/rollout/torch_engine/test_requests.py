"""Begin and end of requests on the torch engine."""

import contextlib
from typing import Any

import pytest

from seamlessflow.producers.rollout.engine.contract import SamplingParams, TokenChunk
from seamlessflow.producers.rollout.engine.errors import (
    EngineStateInvalid,
    PromptTooLong,
    RequestInvalid,
)
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import CONTEXT, VOCABULARY, model, prompt
from tests.builders.rollout.generation import Generation, as_bytes
from tests.waiting import until

LONG = SamplingParams(CONTEXT)


def nothing(chunk: TokenChunk) -> None:
    raise AssertionError(f"an unexpected chunk: {chunk}")


def test_a_stop_token_is_sampled_reported_and_last(start: StartEngine) -> None:
    engine = start(model())
    free = Generation(engine, prompt(8), SamplingParams(60, seed=1), "free")
    free.finish()
    stop = free.completion[30]
    end = free.completion.index(stop) + 1
    sampling = SamplingParams(60, seed=1, stop_token_ids=(VOCABULARY - 1, stop))
    if VOCABULARY - 1 in free.completion[:end]:
        pytest.fail("choose another seed: the other stop token comes first")
    stopped = Generation(engine, prompt(8), sampling, "stopped")
    assert stopped.finish() == "stop"
    assert stopped.completion == free.completion[:end]
    assert len(stopped.logprobs) == end


def test_max_tokens_counts_the_whole_completion(start: StartEngine) -> None:
    engine = start(model())
    done = prompt(7, 5)
    rest = Generation(engine, prompt(8), SamplingParams(10), completion=done)
    assert rest.finish() == "length"
    assert rest.completion[:7] == done
    assert len(rest.completion) == 10
    assert [chunk.offset for chunk in rest.chunks] == [7, 8, 9]


@pytest.mark.parametrize(
    ("prompt_length", "completion", "sampling", "reason"),
    [
        (8, [1, 2, 3], SamplingParams(3), "length"),
        (8, [1, 2, 3], SamplingParams(2), "length"),
        (8, [1, 2, 3], SamplingParams(9, stop_token_ids=(3,)), "stop"),
        (CONTEXT - 3, [1, 2, 3], SamplingParams(9), "length"),
        (CONTEXT, [], SamplingParams(9), "length"),
    ],
)
def test_a_continuation_with_nothing_left_ends_without_a_token(
    prompt_length: int,
    completion: list[int],
    sampling: SamplingParams,
    reason: str,
    start: StartEngine,
) -> None:
    rest = Generation(
        start(model()), prompt(prompt_length), sampling, "rest", completion=completion
    )
    assert rest.finish() == reason
    assert rest.completion == completion
    assert len(rest.chunks) == 1


def test_the_context_limit_ends_a_completion(start: StartEngine) -> None:
    engine = start(model(), max_length=64)
    cut = Generation(engine, prompt(60), LONG)
    assert cut.finish() == "length"
    assert len(cut.tokens) == 64


def test_what_cannot_be_served_is_refused_with_the_facts(start: StartEngine) -> None:
    engine = start(model(), max_length=64)
    with pytest.raises(PromptTooLong) as too_long:
        engine.submit("r", as_bytes(prompt(60)), as_bytes(prompt(5)), LONG, nothing)
    assert (too_long.value.length, too_long.value.limit) == (65, 64)
    for bad in (b"", b"123", as_bytes([VOCABULARY]), as_bytes([3, -1])):
        with pytest.raises(RequestInvalid):
            engine.submit("r", bad, b"", LONG, nothing)
    assert engine.health().waiting == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"top_p": 0.0},
        {"top_k": -1},
        {"top_logprobs": -1},
        {"top_logprobs": 21},
    ],
)
def test_sampling_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingParams(**{"max_tokens": 5, **wrong})


def test_an_abort_hands_back_all_tokens_so_far(start: StartEngine) -> None:
    engine = start(model(), max_running=1)
    running = Generation(engine, prompt(8), LONG, "running", hold_at=25)
    waiting = Generation(engine, prompt(9), LONG, "waiting")
    running.wait_held()
    engine.abort("running")
    running.let_go()
    assert running.finish() == "abort"
    assert len(running.completion) == len(running.logprobs) == 25
    assert running.chunks[-1] == TokenChunk(25, b"", b"", (), "abort")
    engine.abort(None)
    assert waiting.finish() == "abort"
    engine.abort("unknown")


def test_an_aborted_id_can_be_used_again_at_once(start: StartEngine) -> None:
    engine = start(model())
    first = Generation(engine, prompt(8), LONG, hold_at=5)
    first.wait_held()
    engine.abort("request")
    second = Generation(engine, prompt(8), SamplingParams(10))
    first.let_go()
    assert first.finish() == "abort"
    assert second.finish() == "length"


def test_a_duplicate_of_a_live_request_is_ignored(start: StartEngine) -> None:
    engine = start(model())
    first = Generation(engine, prompt(8), SamplingParams(30), hold_at=5)
    first.wait_held()
    engine.submit("request", as_bytes(prompt(3)), b"", LONG, nothing)
    first.let_go()
    assert first.finish() == "length"
    until(lambda: engine.health().running == engine.health().waiting == 0)


def test_more_requests_than_rows_all_finish(start: StartEngine) -> None:
    engine = start(model(), max_running=3, max_rows=3)
    generations = [Generation(engine, prompt(5, i), SamplingParams(7), f"r{i}") for i in range(20)]
    assert {each.finish() for each in generations} == {"length"}


def test_a_callback_that_raises_ends_only_its_own_request() -> None:
    def broken(chunk: TokenChunk) -> None:
        raise KeyError("a bug of the caller")

    with contextlib.closing(TorchEngine(model(), TorchEngineSettings())) as engine:
        good = Generation(engine, prompt(8), SamplingParams(50), "good")
        engine.submit("bad", as_bytes(prompt(8)), b"", LONG, broken)
        assert good.finish() == "length"
        until(lambda: engine.health().running == 0)
        assert engine.health().failed_callbacks == 1
        assert engine.health().error is None


def test_a_callback_must_not_wait_for_the_engine_it_runs_in() -> None:
    raised: list[str] = []

    def waiting(chunk: TokenChunk) -> None:
        for call in (engine.resume, engine.close):
            with pytest.raises(EngineStateInvalid) as refused:
                call()
            raised.append(refused.value.call)

    with contextlib.closing(TorchEngine(model(), TorchEngineSettings())) as engine:
        engine.submit("r", as_bytes(prompt(8)), b"", SamplingParams(1), waiting)
        until(lambda: len(raised) == 2)
    assert raised == ["resume", "close"]


def test_close_ends_all_requests_and_refuses_new_ones(start: StartEngine) -> None:
    engine = start(model(), max_running=1)
    running = Generation(engine, prompt(8), LONG, "running", hold_at=5)
    waiting = Generation(engine, prompt(8), LONG, "waiting")
    running.wait_held()
    running.let_go()
    engine.close()
    assert running.finish() == waiting.finish() == "abort"
    engine.close()
    engine.abort(None)
    with pytest.raises(EngineStateInvalid):
        engine.submit("late", as_bytes(prompt(8)), b"", LONG, nothing)
    with pytest.raises(EngineStateInvalid):
        engine.pause("keep")


def test_a_model_that_breaks_ends_the_engine_and_says_so(start: StartEngine) -> None:
    source = model()
    engine = start(source)
    engine.pause("keep")
    source.model.norm.weight.fill_(float("nan"))
    engine.resume()
    ended = Generation(engine, prompt(8), LONG)
    assert ended.finish() == "abort"
    assert ended.completion == []
    assert "LogitsNotFinite" in str(engine.health().error)
    with pytest.raises(EngineStateInvalid):
        engine.resume()
    with pytest.raises(EngineStateInvalid):
        engine.submit("late", as_bytes(prompt(8)), b"", LONG, nothing)
