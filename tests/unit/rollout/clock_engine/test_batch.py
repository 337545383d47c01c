"""Chunks of the clock engine and their times: turns, reports, new weights, aborts, prefixes."""

import pytest

from seamlessflow.infra.device_model.rates import Rates
from tests.builders.rollout.clock_turns import STOP, ClockedTurns, request

RATES = Rates(row_s=1, prompt_s=0.001, rows=8)
PROMPT = tuple(range(1, 1001))


def test_rows_share_the_passes_and_each_turn_has_a_chunk_at_its_first_token_and_its_end() -> None:
    turns = ClockedTurns(RATES, tokens=3)
    turns.add(request("a", prompt=(1,), max_tokens=2))
    turns.add(request("b", (1,), max_tokens=9))

    turns.run(100)

    # Two rows for two passes of two seconds, then one row for one pass; a prompt is a millisecond.
    assert turns.ends_s("a", "b") == [4.002, 5.002]
    assert [(at_s, len(chunk.token_ids) // 4) for at_s, chunk in turns.chunks["b"]] == [
        (2.002, 1),
        (5.002, 2),
    ]
    assert turns.tokens("b")[-1] == STOP


def test_it_sleeps_from_event_to_event_however_many_tokens_come() -> None:
    turns = ClockedTurns(RATES, tokens=5000)
    turns.add(request(max_tokens=9000))

    turns.run(99)
    assert turns.batch.state.next_s == 100, "the first report"
    turns.run(4000)

    assert len(turns.chunks["one"]) == 1 + 40
    assert len(turns.tokens("one")) == 3999


def test_turns_beyond_the_rows_or_the_memory_wait_and_begin_when_another_ended() -> None:
    for rates in (
        Rates(row_s=1, prompt_s=0.001, rows=1),
        Rates(row_s=1, prompt_s=0.001, kv_tokens=15),
    ):
        turns = ClockedTurns(rates)
        for name in ("a", "b"):
            turns.add(request(name))
        assert (turns.batch.state.running, turns.batch.state.waiting) == (1, 1)

        turns.run(6)
        turns.run(100)  # a thread that wakes late delivers late, and begins nothing late

        assert turns.ends_s("a", "b") == [8.003, 16.006]


def test_new_weights_give_one_answer_two_versions_and_its_keys_and_values_again() -> None:
    turns = ClockedTurns(RATES)
    turns.add(request(prompt=PROMPT))
    turns.run(4.5)  # a second for its prompt, then three and a half tokens

    turns.update(version=2, took_s=10)
    turns.run(100)

    spans = [(span.start, span.version) for _, chunk in turns.chunks["one"] for span in chunk.spans]
    assert spans == [(0, 1), (1, 1), (3, 2)]
    assert turns.ends_s("one") == pytest.approx([14.5 + 1.0035 + 4.5])
    clock = turns.batch.state.clock
    assert clock.recomputing_s == pytest.approx(1.0035)
    assert clock.busy_s == pytest.approx(4.5 + 1.0035 + 4.5)
    assert clock.tokens == pytest.approx(8)


def test_an_abort_delivers_what_was_sampled_and_frees_the_row() -> None:
    turns = ClockedTurns(Rates(row_s=1, prompt_s=0.001, rows=1))
    turns.add(request("a"))
    turns.add(request("b"))
    turns.run(3.5)

    turns.take(turns.batch.abort("a", turns.now_s))
    assert len(turns.tokens("a")) == 3
    assert turns.chunks["a"][-1][1].finish_reason == "abort"
    turns.run(100)

    assert turns.ends_s("b") == [3.5 + 8.003]


def test_a_next_turn_computes_only_the_blocks_that_are_new_until_there_are_new_weights() -> None:
    turns = ClockedTurns(RATES)
    turns.add(request("a", PROMPT))
    turns.run(20)
    assert turns.ends_s("a") == [9.0]

    longer = (*PROMPT, *turns.tokens("a"), *range(992))  # 2000 tokens
    turns.add(request("b", longer, computed=1008))
    turns.run(40)
    assert turns.batch.state.reused == 15 * 64, "whole blocks"
    assert turns.ends_s("b") == pytest.approx([20 + 1.04 + 8])
    assert turns.batch.state.clock.recomputing_s == pytest.approx(0.048)

    turns.update(version=2, took_s=0)
    turns.add(request("c", longer, computed=2000))
    turns.run(60)
    assert turns.ends_s("c") == pytest.approx([40 + 2 + 8])
    assert turns.batch.state.clock.recomputing_s == pytest.approx(2.048)


def test_samples_of_one_prompt_share_what_one_of_them_left() -> None:
    turns = ClockedTurns(RATES)
    turns.add(request("a", PROMPT))
    turns.run(20)

    for name in ("b", "c"):
        turns.add(request(name, PROMPT))
    turns.batch.abort("b", turns.now_s)
    turns.add(request("d", PROMPT))

    assert turns.batch.state.reused == 3 * 15 * 64


def test_the_oldest_blocks_go_when_running_turns_need_the_memory() -> None:
    turns = ClockedTurns(Rates(row_s=1, prompt_s=0.001, kv_tokens=2100))
    other = tuple(range(5000, 6000))
    for name, prompt in (("a", PROMPT), ("b", other), ("c", PROMPT)):
        turns.add(request(name, prompt))
        turns.run(turns.now_s + 20)
    assert turns.batch.state.reused == 15 * 64, "both fit"

    turns.add(request("d", tuple(range(7000, 8000))))
    turns.run(turns.now_s + 20)
    turns.add(request("e", other))

    assert turns.batch.state.reused == (15 + 2) * 64, "of b, the oldest, two are left"


def test_a_lone_row_counts_for_little_and_a_health_in_between_sees_it() -> None:
    rates = Rates(weights_s=1, row_s=1 / 8, prompt_s=0.001, rows=8)
    turns = ClockedTurns(rates, tokens=50)
    turns.add(request(prompt=PROMPT))

    half, whole = turns.batch.state.at(0.5), turns.batch.state.at(1e9)

    assert (half.full_batch_s, half.busy_s, half.tokens) == (0.5, 0.5, 0)
    assert whole.now_s == turns.batch.state.next_s, "no further than the next event"
    turns.run(1 + 48)
    clock = turns.batch.state.clock
    assert clock.full_batch_s == pytest.approx(1 + 48 / 8)
    assert clock.busy_s == pytest.approx(1 + 48)


def test_a_tenth_of_the_scale_makes_everything_ten_times_as_fast() -> None:
    results = []
    for scale in (1.0, 0.1):
        rates = Rates(weights_s=1, row_s=0.2, context_s=1e-4, prompt_s=0.001, rows=4)
        turns = ClockedTurns(rates.scaled(scale))
        for number in range(6):
            turns.add(request(str(number), PROMPT[number:]))
        turns.run(5 * scale)
        turns.update(version=2, took_s=3 * scale)
        turns.run(100 * scale)
        clock = turns.batch.state.clock
        figures = [clock.busy_s, clock.full_batch_s, clock.recomputing_s, *turns.ends_s(*"012345")]
        results.append([figure / scale for figure in figures])
        assert clock.tokens == pytest.approx(48)

    assert results[1] == pytest.approx(results[0], rel=1e-4)
