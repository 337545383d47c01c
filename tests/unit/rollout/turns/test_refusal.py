"""Turns that a worker refuses to sample, and the cause that it reports."""

from typing import Any

import pytest

from seamlessflow.producers.rollout.turns.refusal import failed, refusal, unsupported
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
