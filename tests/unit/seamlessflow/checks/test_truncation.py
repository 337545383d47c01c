"""Training of turns sampled with top-p or top-k, against the log-probs that the engine reports."""

import pytest

from seamlessflow.checks.truncation import truncation_faults
from seamlessflow.config_file import as_written, parse


def faults(engine: str, **policy: object) -> list[str]:
    config = parse({"rollout": {"engine": engine}, "policy": policy})
    return [fault.line(as_written) for fault in truncation_faults(config)]


@pytest.mark.parametrize("trained", ["train_truncated", "train_inexact"])
@pytest.mark.parametrize(("name", "value"), [("top_p", 0.9), ("top_k", 20)])
def test_log_probs_among_the_tokens_kept_are_not_trained(
    trained: str, name: str, value: float
) -> None:
    [line] = faults("vllm", **{name: value, trained: True})
    assert line.startswith(f"policy.{trained}: ")
    assert f"policy.{name} is {value}" in line


@pytest.mark.parametrize(
    ("engine", "policy"),
    [
        ("torch", {"top_p": 0.9, "train_truncated": True}),
        ("torch", {"top_p": 0.9, "train_inexact": True}),
        ("scripted", {"top_k": 5, "train_truncated": True}),
        ("vllm", {"top_p": 0.9}),
        ("vllm", {"train_truncated": True, "train_inexact": True}),
    ],
)
def test_what_is_exact_or_not_trained_may_start(engine: str, policy: dict[str, object]) -> None:
    assert faults(engine, **policy) == []
