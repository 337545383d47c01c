"""Times of passes and prompts as they follow from the reports of engines."""

from collections.abc import Sequence

import pytest

from seamlessflow.lab.calibration.decoding import DecodingTimes, decoding_times
from seamlessflow.lab.calibration.recorded_run import RecordedTurn
from seamlessflow.schemas.records import WorkerUsage
from tests.builders.records.control import usage

PASS_S, ROW_S, PROMPT_S = 0.010, 0.001, 0.0005
ROWS = 16
PROMPT, SAMPLED = 20, 50


def report(rows: int, begun_ms: int, again_ms: int = 0) -> tuple[WorkerUsage, list[RecordedTurn]]:
    """Return a worker's account of so many turns that it sampled side by side, and these."""
    prompts_s = rows * PROMPT * PROMPT_S
    decoding_s = SAMPLED * (PASS_S + rows * ROW_S)
    full_s = rows * SAMPLED * (PASS_S / ROWS + ROW_S)
    took_ms = round(1000 * (prompts_s + decoding_s)) + again_ms
    turn = RecordedTurn(
        session="g.0.0",
        worker="w",
        hop_ms=0,
        started_ms=begun_ms,
        ended_ms=begun_ms + took_ms,
        prompt=PROMPT,
        added=PROMPT,
        sampled=SAMPLED,
    )
    record = usage(
        from_ms=begun_ms,
        at_ms=begun_ms + took_ms,
        decoding_ms=took_ms,
        full_batch_ms=round(1000 * (prompts_s + full_s)),
        recomputing_ms=again_ms,
        tokens=rows * SAMPLED,
    )
    return record, [turn] * rows


def fitted(counts: Sequence[int], again: float = 0, again_ms: int = 0) -> DecodingTimes | None:
    """Return the fit to batches of so many turns, the first of which computed KV again."""
    reports = [
        report(rows, 10_000 * number, 0 if number else again_ms)
        for number, rows in enumerate(counts)
    ]
    records = [each for each, _ in reports]
    return decoding_times(
        records, [turn for _, turns in reports for turn in turns], ROWS, 0.0, again
    )


def test_the_line_of_a_pass_over_its_rows_is_found() -> None:
    times = fitted([4, 4, 4], again=1000, again_ms=500)

    assert times is not None
    assert times.rows == pytest.approx(4)
    assert times.prompt_s == pytest.approx(PROMPT_S)
    assert times.pass_s == pytest.approx(PASS_S, rel=0.01)
    assert times.row_s == pytest.approx(ROW_S, rel=0.05)
    assert times.rates()["weights_s"] == 0


def test_a_token_of_a_prompt_takes_as_long_as_a_sampled_one_if_no_time_tells() -> None:
    times = fitted([4, 4, 4])

    assert times is not None
    assert times.pass_s == pytest.approx(PASS_S, rel=0.01)
    assert times.prompt_s == times.row_s
    whole_s = SAMPLED * ROW_S + PROMPT * PROMPT_S
    assert times.row_s * (SAMPLED + PROMPT) == pytest.approx(whole_s, rel=0.05)


def test_of_more_turns_than_rows_the_others_wait() -> None:
    record, turns = report(ROWS, 0)

    times = decoding_times([record], turns * 3, ROWS, 0.0)

    assert times is not None
    assert times.rows == ROWS


def test_without_a_sampled_token_nothing_is_known() -> None:
    assert decoding_times([usage(at_ms=1000, idle_ms=1000)], [], ROWS, 0.0) is None
