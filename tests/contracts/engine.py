"""The contract of every engine, as tests: the test class of each derives from `EngineContract`."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from seamlessflow.producers.rollout.engine.contract import Engine, SamplingParams, TokenChunk
from seamlessflow.producers.rollout.engine.errors import (
    EngineStateInvalid,
    PromptTooLong,
    RequestInvalid,
    SamplingUnsupported,
)
from tests.builders.rollout.generation import Generation, as_bytes
from tests.waiting import until

LONG = SamplingParams(200)
PROMPT = [5, 6, 7, 8]
LOGPROB_TOLERANCE = 1e-4


Rows = npt.NDArray[np.float64]
Distribution = Callable[[list[int], int], Rows]
"""Returns, for the tokens from a place on, the log-probs of the whole vocabulary at each, raw."""


def tempered(raw: Rows, temperature: float) -> Rows:
    """Return log-probs at a temperature, from those at temperature 1."""
    scaled = raw / temperature
    scaled -= scaled.max(axis=1, keepdims=True)
    rows: Rows = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    return rows


def assert_reported(done: Generation, expected: Rows, tolerance: float) -> None:
    """Compare all log-probs that the engine reported with rows of the whole vocabulary."""
    places = np.arange(len(done.completion))
    wanted = expected[places, done.completion]
    np.testing.assert_allclose(done.logprobs, wanted, rtol=0, atol=tolerance)
    for row, top in zip(expected, done.tops, strict=bool(done.tops)):
        likely = [row[token] for token in top]
        np.testing.assert_allclose(list(top.values()), likely, rtol=0, atol=tolerance)


def nothing(chunk: TokenChunk) -> None:
    raise AssertionError(f"an unexpected chunk: {chunk}")


class EngineContract:
    """Fixtures of a subclass: `engine` (version 3, context of 256), `weights`, a directory, and
    `distribution`, computed without the engine.
    """

    structured_output = False
    whole_vocabulary = True
    """False for an engine whose log-probs under top-k are those among the tokens kept."""
    loads_asleep = True
    """False for an engine that must be awake to load weights."""

    def tolerance(self, temperature: float) -> float:
        """Return by how much log-probs at a temperature may differ from the distribution's."""
        return LOGPROB_TOLERANCE

    def test_tokens_logprobs_and_versions_come_in_step(self, engine: Engine) -> None:
        done = Generation(engine, PROMPT, SamplingParams(12))
        assert done.finish() == "length"
        assert len(done.completion) == len(done.logprobs) == 12
        assert set(done.versions) == {3}
        assert all(logprob <= 0 for logprob in done.logprobs)

    def test_a_stop_token_is_reported_and_last(self, engine: Engine) -> None:
        greedy = SamplingParams(12, temperature=0)
        free = Generation(engine, PROMPT, greedy, "free")
        free.finish()
        stops = tuple(sorted(set(free.completion)))
        stopped = Generation(engine, PROMPT, SamplingParams(12, 0, stop_token_ids=stops), "stopped")
        assert stopped.finish() == "stop"
        assert stopped.completion[-1] in stops
        assert len(stopped.logprobs) == len(stopped.completion)

    def test_a_continuation_gives_only_what_follows(self, engine: Engine) -> None:
        greedy = SamplingParams(12, temperature=0)
        whole = Generation(engine, PROMPT, greedy, "whole")
        whole.finish()
        rest = Generation(engine, PROMPT, greedy, "rest", completion=whole.completion[:5])
        assert rest.finish() == "length"
        assert rest.completion == whole.completion
        assert rest.chunks[0].offset == 5
        assert len(rest.logprobs) == 7

    @pytest.mark.parametrize(
        ("sampling", "reason"),
        [
            (SamplingParams(3), "length"),
            (SamplingParams(2), "length"),
            (SamplingParams(9, stop_token_ids=(3,)), "stop"),
        ],
    )
    def test_a_continuation_with_nothing_left_ends_without_a_token(
        self, engine: Engine, sampling: SamplingParams, reason: str
    ) -> None:
        rest = Generation(engine, PROMPT, sampling, completion=[1, 2, 3])
        assert rest.finish() == reason
        assert rest.completion == [1, 2, 3]

    def test_the_context_limit_ends_a_completion(self, engine: Engine) -> None:
        cut = Generation(engine, [1] * 250, LONG)
        assert cut.finish() == "length"
        assert len(cut.tokens) == 256

    def test_what_cannot_be_served_is_refused(self, engine: Engine) -> None:
        with pytest.raises(PromptTooLong) as too_long:
            engine.submit("r", as_bytes([1] * 250), as_bytes([1] * 7), LONG, nothing)
        assert (too_long.value.length, too_long.value.limit) == (257, 256)
        for bad in (b"", b"123"):
            with pytest.raises(RequestInvalid):
                engine.submit("r", bad, b"", LONG, nothing)

    def test_a_schema_is_followed_or_refused(self, engine: Engine) -> None:
        asked = SamplingParams(5, json_schema="{}")
        if self.structured_output:
            assert Generation(engine, PROMPT, asked).finish() in ("stop", "length")
            return
        with pytest.raises(SamplingUnsupported) as refused:
            engine.submit("r", as_bytes(PROMPT), b"", asked, nothing)
        assert "structured output" in refused.value.reason

    def test_the_most_likely_tokens_come_with_those_that_ask_for_them(self, engine: Engine) -> None:
        asked = SamplingParams(6, temperature=0, top_logprobs=3)
        with_top = Generation(engine, PROMPT, asked, "with")
        more = Generation(engine, PROMPT, SamplingParams(6, top_logprobs=20), "more")
        without = Generation(engine, PROMPT, SamplingParams(6), "without")
        assert {each.finish() for each in (with_top, more, without)} == {"length"}
        assert [len(row) for row in with_top.tops] == [3] * 6
        assert [len(row) for row in more.tops] == [20] * 6
        assert without.tops == []
        for token, logprob, row in zip(
            with_top.completion, with_top.logprobs, with_top.tops, strict=True
        ):
            assert next(iter(row.items())) == (token, logprob)
            assert list(row.values()) == sorted(row.values(), reverse=True)

    @pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.7])
    def test_log_probs_are_those_of_the_distribution_sampled_from(
        self, engine: Engine, distribution: Distribution, temperature: float
    ) -> None:
        asked = SamplingParams(20, temperature=temperature, top_logprobs=3)
        done = Generation(engine, PROMPT, asked)
        assert done.finish() == "length"
        expected = tempered(distribution(done.tokens, len(PROMPT)), temperature)
        assert_reported(done, expected, self.tolerance(temperature))

    def test_rows_of_one_batch_keep_their_own_temperatures(
        self, engine: Engine, distribution: Distribution
    ) -> None:
        engine.pause("keep")
        temperatures = (0.0, 0.5, 1.0, 2.0)
        rows = [
            Generation(
                engine, PROMPT, SamplingParams(9, temperature, top_logprobs=3), f"r{temperature}"
            )
            for temperature in temperatures
        ]
        engine.resume()
        for done, temperature in zip(rows, temperatures, strict=True):
            done.finish()
            # A greedy request has no distribution: its log-probs are the raw ones.
            expected = tempered(distribution(done.tokens, len(PROMPT)), temperature or 1.0)
            assert_reported(done, expected, self.tolerance(temperature or 1.0))

    def test_top_k_leaves_log_probs_over_the_whole_vocabulary(
        self, engine: Engine, distribution: Distribution
    ) -> None:
        done = Generation(engine, PROMPT, SamplingParams(20, temperature=0.7, top_k=3))
        done.finish()
        rows = tempered(distribution(done.tokens, len(PROMPT)), 0.7)
        if not self.whole_vocabulary:
            rows -= np.log(np.exp(np.sort(rows)[:, -3:]).sum(axis=1))[:, None]
        assert_reported(done, rows, self.tolerance(0.7))

    def test_an_abort_ends_one_request_or_all(self, engine: Engine) -> None:
        engine.pause("keep")
        first = Generation(engine, PROMPT, LONG, "first")
        second = Generation(engine, PROMPT, LONG, "second")
        engine.abort("first")
        assert first.finish() == "abort"
        engine.abort("unknown")
        engine.abort(None)
        assert second.finish() == "abort"

    def test_paused_requests_wait_and_go_on(self, engine: Engine) -> None:
        engine.pause("keep")
        waiting = Generation(engine, PROMPT, SamplingParams(5))
        assert engine.health().paused
        engine.resume()
        assert waiting.finish() == "length"

    def test_a_repeated_id_of_a_live_request_is_ignored(self, engine: Engine) -> None:
        engine.pause("keep")
        first = Generation(engine, PROMPT, SamplingParams(5))
        engine.submit("request", as_bytes(PROMPT), b"", LONG, nothing)
        engine.resume()
        assert first.finish() == "length"
        until(lambda: engine.health().running == engine.health().waiting == 0)

    def test_pausing_by_abort_ends_all_requests(self, engine: Engine) -> None:
        engine.pause("keep")
        waiting = Generation(engine, PROMPT, LONG)
        engine.pause("abort")
        assert waiting.finish() == "abort"

    def test_tokens_after_new_weights_are_of_their_version(
        self, engine: Engine, weights: Path
    ) -> None:
        engine.pause("keep")
        kept = Generation(engine, PROMPT, SamplingParams(5), "kept")
        engine.load_weights(weights, 4)
        engine.resume()
        assert kept.finish() == "length"
        assert set(kept.versions) == {4}
        assert engine.health().version == 4

    def test_sleep_needs_a_pause_and_waking_stays_paused(
        self, engine: Engine, weights: Path
    ) -> None:
        with pytest.raises(EngineStateInvalid):
            engine.sleep()
        engine.pause("keep")
        kept = Generation(engine, PROMPT, SamplingParams(5))
        assert engine.sleep() >= 0
        with pytest.raises(EngineStateInvalid):
            engine.resume()
        engine.wake()
        assert engine.health().paused
        assert not engine.health().asleep
        engine.resume()
        assert kept.finish() == "length"

    def test_an_engine_that_sleeps_loads_weights_or_refuses_to(
        self, engine: Engine, weights: Path
    ) -> None:
        engine.pause("keep")
        kept = Generation(engine, PROMPT, SamplingParams(5))
        engine.sleep()
        if self.loads_asleep:
            engine.load_weights(weights, 4)
        else:
            with pytest.raises(EngineStateInvalid):
                engine.load_weights(weights, 4)
        assert engine.health().asleep
        engine.wake()
        engine.resume()
        assert kept.finish() == "length"
        assert set(kept.versions) == {4 if self.loads_asleep else 3}

    def test_weights_are_loaded_only_while_paused(self, engine: Engine, weights: Path) -> None:
        with pytest.raises(EngineStateInvalid):
            engine.load_weights(weights, 4)

    def test_chunks_come_from_another_thread(self, engine: Engine) -> None:
        threads: list[threading.Thread] = []
        came = threading.Event()

        def take(chunk: TokenChunk) -> None:
            threads.append(threading.current_thread())
            came.set()

        engine.submit("r", as_bytes(PROMPT), b"", SamplingParams(1), take)
        assert came.wait(60)
        assert threads[0] is not threading.current_thread()

    def test_a_callback_that_raises_ends_only_its_own_request(self, engine: Engine) -> None:
        def broken(chunk: TokenChunk) -> None:
            raise KeyError("a bug of the caller")

        engine.submit("bad", as_bytes(PROMPT), b"", SamplingParams(5), broken)
        assert Generation(engine, PROMPT, SamplingParams(5), "good").finish() == "length"
        until(lambda: engine.health().failed_callbacks == 1)
        assert engine.health().error is None

    def test_closing_ends_all_requests_and_refuses_new_ones(self, engine: Engine) -> None:
        engine.pause("keep")
        waiting = Generation(engine, PROMPT, LONG)
        engine.close()
        assert waiting.finish() == "abort"
        engine.close()
        engine.abort(None)
        with pytest.raises(EngineStateInvalid):
            engine.submit("late", as_bytes(PROMPT), b"", LONG, nothing)
