"""Turns that run at once where their KV has little room."""

import pytest

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import TOKEN_BYTES, model, prompt
from tests.builders.rollout.generation import Generation

ONE_ROW = 512 * TOKEN_BYTES
"""Room for one turn of full length."""


def test_short_turns_share_the_room_of_one_long_turn(start: StartEngine) -> None:
    engine = start(model(), kv_bytes=ONE_ROW)
    turns = [
        Generation(engine, prompt(40, seed=number), SamplingParams(20), f"{number}", hold_at=5)
        for number in range(8)
    ]
    turns[0].wait_held()
    assert engine.health().running == 4
    for turn in turns:
        turn.let_go()
    assert [turn.finish() for turn in turns] == ["length"] * 8
    assert engine.health().kv_bytes <= ONE_ROW


@pytest.mark.parametrize("length", [1, 300])
def test_turns_that_outgrow_the_room_wait_and_have_the_same_tokens(
    length: int, start: StartEngine
) -> None:
    prompts = [prompt(length, seed=number) for number in range(4)]
    crowded, wide = start(model(), kv_bytes=ONE_ROW), start(model())
    completions = []
    for engine in (crowded, wide):
        turns = [
            Generation(engine, tokens, SamplingParams(200, seed=number), f"{number}")
            for number, tokens in enumerate(prompts)
        ]
        assert [turn.finish() for turn in turns] == ["length"] * 4
        completions.append([turn.completion for turn in turns])
    assert completions[0] == completions[1]
    assert crowded.health().kv_bytes <= ONE_ROW
    assert crowded.health().recomputing_seconds > 0 or length == 300
