"""TRL's `GRPOTrainer` on sessions of the gateway, by the `rollout_func` of docs/chains.md."""

import re
from typing import Any

import pytest

from tests.e2e.running_system import RunningSystem
from tests.environments.checks import TINY, Row
from tests.environments.playing import PROGRAMS
from tests.environments.trainers.packages import python_of_peers
from tests.environments.trainers.printed import chains, printed
from tests.paths import ROOT

STEPS = 2
SEQUENCES = 4
"""Sequences of a step."""
PARITY = 1e-4


@pytest.fixture(scope="module")
def lines(sampling: RunningSystem, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return what a run of a few steps printed."""
    orders = {
        "url": sampling.url,
        "key": sampling.admin_key,
        "model": str(sampling.current),
        "out": str(tmp_path_factory.mktemp("trl")),
        "steps": STEPS,
    }
    return printed(python_of_peers(), "trl_rollouts.py", orders)


def test_the_loss_gets_the_ids_masks_and_log_probs_on_the_log(
    sampling: RunningSystem, lines: list[Any], rows: list[Row]
) -> None:
    rewarded = [line for line in lines if "session" in line]
    sessions = {tuple(line["completion_ids"]): line["session"] for line in rewarded}
    losses = [line for line in lines if "loss" in line]
    assert len(losses) == STEPS * SEQUENCES
    for line in losses:
        answer = line["token_ids"][-len(line["mask"]) :]
        [chain] = chains(sampling, sessions[tuple(answer)])
        at = chain["prompt_length"]
        assert line["token_ids"] == chain["token_ids"]
        assert line["mask"] == [int(flag) for flag in chain["mask"][at:]]
        assert line["logprobs"] == pytest.approx(chain["logprobs"][at:])
        assert len(chain["turns"]) == 2
        assert 0 in line["mask"]
    rows.append(Row("trl", f"{STEPS} steps of GRPOTrainer", TINY, "2", "1", ""))


def test_the_model_that_sampled_is_the_one_that_trl_computes_at_first(lines: list[Any]) -> None:
    first = [line for line in lines if line.get("step") == 0]
    assert len(first) == SEQUENCES
    for line in first:
        pairs = zip(line["mask"], line["computed"], line["logprobs"], strict=True)
        differences = [abs(computed - sampled) for flag, computed, sampled in pairs if flag]
        assert max(differences) < PARITY


def test_its_page_shows_the_function_that_was_run() -> None:
    page = (ROOT / "docs" / "chains.md").read_text()
    [shown] = re.findall(r"```python\n(def rollout.*?)```", page, flags=re.DOTALL)
    assert shown in (PROGRAMS / "trl_rollouts.py").read_text()
