"""The client of verifiers that prime-rl trains with: it renders, asks by ids, and keeps ids."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.agents.agent_system import AgentSystem, same_tokens
from tests.e2e.running_system import POLICY, RunningSystem
from tests.environments.checks import SCRIPTS, Row
from tests.environments.playing import PROGRAMS
from tests.environments.trainers.packages import VERIFIERS, python_of
from tests.environments.trainers.printed import Chain, chains, printed

RENDERER = {"name": "qwen3", "thinking_retention": "all"}


def trained(
    system: RunningSystem, session_id: str, tokenizer: str, taskset: str, **sampling: Any
) -> Mapping[str, Any]:
    """Run a task in a session; return its reward and the samples that verifiers would train."""
    opened = system.admin("/sessions", session_id=session_id, policy=POLICY).json()
    orders = {
        "base_url": opened["base_url"],
        "taskset": taskset,
        "tokenizer": tokenizer,
        "renderer": RENDERER,
        "sampling": sampling,
    }
    [episode] = printed(
        python_of(VERIFIERS),
        "verifiers_training.py",
        orders,
        SESSION_KEY=opened["api_key"],
        PYTHONPATH=str(PROGRAMS),
    )
    return dict(episode)


def same_samples(samples: list[Mapping[str, Any]], on_log: list[Chain]) -> None:
    """Check that the samples of a trace are the chains on the log."""
    assert [sample["token_ids"] for sample in samples] == [chain["token_ids"] for chain in on_log]
    assert [sample["mask"] for sample in samples] == [chain["mask"] for chain in on_log]
    for sample, chain in zip(samples, on_log, strict=True):
        assert sample["logprobs"] == pytest.approx(chain["logprobs"])


def test_the_samples_of_a_rollout_with_a_tool_are_a_chain_on_the_log(
    acting: AgentSystem, rows: list[Row]
) -> None:
    before = len(acting.sampled(0))
    tokenizer = str(acting.record.parent / "policy")
    episode = trained(acting.running, "verifiers-trains", tokenizer, "sums_set")
    made = acting.running.end("verifiers-trains", episode["reward"])
    same_tokens(made, acting.sampled(before))
    same_samples(episode["branches"], chains(acting.running, "verifiers-trains"))
    assert (episode["reward"], made.match_rules) == (1.5, {"root": 1, "extend": 1})
    rows.append(Row("verifiers", "its training client, a tool", SCRIPTS, "2", "1", ""))
