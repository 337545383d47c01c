"""Turns that a worker refuses to sample, and the cause that it reports."""

from typing import Any

import pytest

from seamlessflow.producers.rollout.turns.refusal import failed, refusal, unsupported
from seamlessflow.producers.rollout.turns.sampling import sampling_params, turn_seed
from seamlessflow.schemas.records import Sampling
from seamlessflow.schemas.tokens import pack
from tests.builders.records.prompts import generate


@pytest.mark.parametrize(
    ("changes", "status", "reason", "cause"),
    [
        ({"deadline_ms": 1_000}, 504, "deadline", "infrastructure"),
        ({"policy": "another"}, 503, "no_worker", "infrastructure"),
        ({"pinned_version": 6}, 503, "no_worker", "infrastructure"),
        ({"prefill": 4}, 400, "bad_request", "environment"),
        ({"prefill": -1}, 400, "bad_request", "environment"),
        ({"adapter": "lora"}, 400, "unsupported_value", "environment"),
        ({"sampling": Sampling(min_p=0.1)}, 400, "unsupported_value", "environment"),
        ({"prompt_ids": pack([1] * 50)}, 400, "prompt_too_long", "policy"),
        ({"prompt_ids": b"123"}, 400, "bad_request", "environment"),
    ],
)
def test_a_turn_is_refused(changes: dict[str, Any], status: int, reason: str, cause: str) -> None:
    asked = generate(**changes)
    why = refusal(asked, "policy", version=7, max_context=50, now_ms=1_000)
    assert why is not None
    assert (why.status, why.reason, why.cause) == (status, reason, cause)
    record = failed(asked, why, 1_000)
    assert (record.turn_id, record.dispatch, record.worker) == ("turn", 1, "worker-0")
    assert (record.status, record.reason, record.detail) == (status, reason, why.detail)


def test_an_ordinary_turn_is_not_refused() -> None:
    asked = generate(prompt_ids=pack([1] * 49), pinned_version=7)
    assert refusal(asked, "policy", version=7, max_context=50, now_ms=1_000) is None


def test_values_that_ask_for_nothing_are_supported() -> None:
    neutral = Sampling(
        temperature=0.3,
        top_p=0.5,
        top_k=3,
        seed=1,
        stop=("a",),
        min_p=0.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        min_tokens=0,
    )
    assert unsupported(neutral) == ()
    bent = Sampling(logit_bias={"3": 1.0}, repetition_penalty=1.1)
    assert unsupported(bent) == ("repetition_penalty", "logit_bias")


def test_sampling_left_open_is_that_of_the_raw_distribution() -> None:
    params = sampling_params(generate(sampling=Sampling()), (9,), 50)
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (1.0, 1.0, 0, None)
    assert params.max_tokens == 47
    assert params.stop_token_ids == (9,)


def test_an_engine_is_given_the_name_of_the_session_and_the_choice() -> None:
    params = sampling_params(generate(session_id="g.0.0~command", choice=2), (), 50)
    assert (params.session, params.choice) == ("g.0.0", 2)


def test_sampling_is_taken_over_and_bounded_by_the_context() -> None:
    asked = Sampling(max_tokens=1_000, temperature=0.0, top_p=0.9, top_k=-1)
    params = sampling_params(generate(sampling=asked), (), 50)
    assert (params.temperature, params.top_p, params.top_k) == (0.0, 0.9, 0)
    assert params.max_tokens == 47
    assert sampling_params(generate(sampling=Sampling(max_tokens=5)), (), 50).max_tokens == 5


def test_a_seed_is_of_its_own_for_session_turn_choice_and_offset() -> None:
    seeds = {
        turn_seed(generate(**changes), 1)
        for changes in (
            {},
            {"session_id": "another"},
            {"turn_id": "another"},
            {"choice": 1},
            {"completion_ids": pack([1])},
        )
    }
    assert len(seeds) == 5
    assert turn_seed(generate(), 1) == turn_seed(generate(dispatch=2), 1)
    assert turn_seed(generate(), 1) != turn_seed(generate(), 2)
    assert all(0 <= seed < 2**63 for seed in seeds)
