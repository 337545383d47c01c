"""Settings that are right in themselves, and of no use or not possible together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.check import before_recorded_training, before_training
from seamlessflow.checks.combinations import (
    live_fork_faults,
    truncation_faults,
    unread_faults,
    update_faults,
)
from seamlessflow.config_file import as_written, parse
from seamlessflow.trainer.settings import TrainerSection
from seamlessflow.trainer.unread import READERS
from tests.algorithms.table import RUNS
from tests.builders.run_files import changed, run_values
from tests.builders.run_files import faults as faults_of

OWN = "workers[0].environment"


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    monkeypatch.chdir(tmp_path)
    return run_values(tmp_path)


def of_worker(values: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    tags = ["rollout", "train"]
    return {**values, "workers": [{"id": "a", "tags": tags, "environment": environment}]}


@pytest.mark.parametrize(
    "environment",
    [
        {"SEAMLESSFLOW_ROLLOUT__TORCH__DTYPE": "bfloat16"},
        {"SEAMLESSFLOW_ROLLOUT__TORCH": '{"dtype": "bfloat16"}', "CUDA_VISIBLE_DEVICES": "0"},
        {"SEAMLESSFLOW_DATA_DIR": "somewhere/else"},
        {"SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": "kafka.example:9092"},
    ],
)
def test_a_worker_may_have_variables_of_its_own(
    values: Mapping[str, Any], environment: Mapping[str, str]
) -> None:
    assert faults_of(of_worker(values, environment)) == ()


@pytest.mark.parametrize(
    ("name", "text", "begins", "reason"),
    [
        ("TRAINER__RANK", "1", "trainer.ranks must", "must exceed 1, the last rank of this"),
        (
            "TRAINER__RANK",
            "one",
            f"{OWN}.SEAMLESSFLOW_TRAINER__RANK",
            "Input should be a valid integer",
        ),
        (
            "ROLLOUT__TORCH__DTYPE",
            "bfloat",
            f"{OWN}.SEAMLESSFLOW_ROLLOUT__TORCH__DTYPE",
            "must be one of float32, bfloat16, float16 (got 'bfloat'); did you mean bfloat16?",
        ),
        (
            "ROLLOUT__TORCH",
            '{"threads": 0}',
            f"{OWN}.SEAMLESSFLOW_ROLLOUT__TORCH.threads",
            "Input should be greater than or equal to 1",
        ),
        ("ROLLOUT__TAGS", "rollout", f"{OWN}.SEAMLESSFLOW_ROLLOUT__TAGS", "must be JSON"),
        ("ROLOUT__CAPACITY", "1", OWN, "did you mean SEAMLESSFLOW_ROLLOUT__CAPACITY?"),
    ],
)
def test_a_wrong_variable_of_a_worker_is_named_as_it_was_written(
    values: Mapping[str, Any], name: str, text: str, begins: str, reason: str
) -> None:
    [line] = faults_of(of_worker(values, {f"SEAMLESSFLOW_{name}": text}))
    assert line.startswith(begins)
    assert reason in line


def test_a_variable_that_is_no_json_is_one_fault(
    values: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY__MODELS", "policy")
    [line] = faults_of(values)
    assert line.startswith("SEAMLESSFLOW_GATEWAY__MODELS: must be JSON")


def cut_faults(engine: str, **policy: object) -> list[str]:
    config = parse({"rollout": {"engine": engine}, "policy": policy})
    return [fault.line(as_written) for fault in truncation_faults(config)]


@pytest.mark.parametrize("trained", ["train_truncated", "train_inexact"])
@pytest.mark.parametrize(("name", "value"), [("top_p", 0.9), ("top_k", 20)])
def test_log_probs_among_the_tokens_kept_are_not_trained(
    trained: str, name: str, value: float
) -> None:
    [line] = cut_faults("vllm", **{name: value, trained: True})
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
    assert cut_faults(engine, **policy) == []


def mode_faults(mode: str, lag: int) -> list[str]:
    config = parse({"rollout": {"update": {"mode": mode}}, "run": {"lag": lag}})
    return [fault.line(as_written) for fault in update_faults(config)]


@pytest.mark.parametrize("mode", ["rolling", "idle"])
def test_a_mode_that_needs_lag_does_not_start_without_it(mode: str) -> None:
    [line] = mode_faults(mode, 0)
    assert line.startswith(f"rollout.update.mode: {mode} has no effect with run.lag 0")
    assert mode_faults(mode, 1) == []


def test_all_workers_load_at_once_with_any_lag() -> None:
    assert mode_faults("together", 0) == mode_faults("together", 1) == []


_SQUARED: dict[str, Any] = {"loss": {"surrogate": "pairs_squared"}}
_LOGISTIC: dict[str, Any] = {"loss": {"surrogate": "pairs_logistic"}}


def faults(trainer: dict[str, Any], **policies: dict[str, Any]) -> list[str]:
    further = {name: {"trainer": section} for name, section in policies.items()}
    config = parse({"trainer": trainer, "policies": further})
    return [fault.line(as_written) for fault in unread_faults(config)]


@pytest.mark.parametrize(
    ("trainer", "setting", "needs"),
    [
        ({"loss": {"surrogate": "sapo", "clip_low": 0.1}}, "loss.clip_low", "ppo_clip or gspo"),
        ({"loss": {"surrogate": "sapo", "clip_high": 0.28}}, "loss.clip_high", "not sapo"),
        ({"loss": {"name": "tis", "clip_low": 0.1}}, "loss.clip_low", "not cispo"),
        ({"loss": {"surrogate": "cloning", "cap": 2.0}}, "loss.cap", "cispo, not cloning"),
        (
            {"loss": {"surrogate": "sapo", "cap": 3.0}},
            "loss.cap",
            "loss.surrogate cispo, not sapo, or loss.correction tis or icepop, not none",
        ),
        ({"loss": {"gate_positive": 1.0}}, "loss.gate_positive", "loss.surrogate sapo"),
        ({"loss": {"divergence": "tv"}}, "loss.divergence", "loss.surrogate dppo"),
        ({"loss": {"kl_estimator": "k2"}}, "loss.kl_estimator", "loss.kl above 0, not 0"),
        ({"returns": {"trace": 0.9}}, "returns.trace", "advantage gae or turn_gae, not grpo"),
        ({"returns": {"discount": 1.0}}, "returns.discount", "not grpo"),
        ({"returns": {"token_discount": 0.9}}, "returns.token_discount", "reinforce_pp"),
        ({"returns": {"turn_weight": 2}}, "returns.turn_weight", "session_and_turn"),
        ({"advantage": "rloo", "returns": {"epsilon": 0.1}}, "returns.epsilon", "not rloo"),
        (
            {"advantage": "maxrl", "returns": {"deviation": "sample"}},
            "returns.deviation",
            "not maxrl",
        ),
        ({"critic": {"lr": 1e-3}}, "critic.lr", "advantage gae, turn_gae or habc, not grpo"),
        ({"critic": {"kind": "head"}}, "critic.kind", "advantage gae, turn_gae or habc"),
        ({"overlong": {"weight": 0.5}}, "overlong.weight", "overlong.length above 0"),
        ({"reuse": {"uses": 3}}, "reuse.uses", "reuse.groups above 0, not 0"),
        ({"optimizer": {"min_lr": 1e-7}}, "optimizer.min_lr", "linear or cosine, not constant"),
        ({"pairs": {"name": "all"}}, "pairs.name", "pairs_squared or pairs_logistic, not ppo_clip"),
        ({**_LOGISTIC, "pairs": {"eta": 0.1}}, "pairs.eta", "pairs_squared, not pairs_logistic"),
        ({**_SQUARED, "pairs": {"beta": 0.1}}, "pairs.beta", "pairs_logistic, not pairs_squared"),
        (
            {**_LOGISTIC, "pairs": {"opponents": {"every": 5}}},
            "pairs.opponents.every",
            "loss.surrogate pairs_squared, not pairs_logistic",
        ),
        (
            {**_LOGISTIC, "selection": {"name": "extremes", "baseline": "all"}},
            "selection.baseline",
            "balanced or module:function, not pairs_logistic, which compares pairs",
        ),
        (
            {**_SQUARED, "pairs": {"reference_share": 1, "opponents": {"most": 1}}},
            "pairs.opponents.most",
            "pairs_squared, not pairs_squared with pairs.reference_share 1",
        ),
        ({**_SQUARED, "returns": {"epsilon": 0.1}}, "returns.epsilon", "not pairs_squared"),
    ],
)
def test_a_setting_that_nothing_reads_is_refused_with_what_would_read_it(
    trainer: dict[str, Any], setting: str, needs: str
) -> None:
    [line] = faults(trainer)
    assert line.startswith(f"trainer.{setting}: nothing reads it: it needs ")
    assert needs in line


@pytest.mark.parametrize(
    "trainer",
    [
        {},
        {"loss": {}},
        {"loss": {"clip_low": 0.1}},
        {"loss": {"surrogate": "gspo", "clip_high": 4e-4}},
        {"loss": {"name": "tis", "cap": 3.0}},
        {"loss": {"correction": "tis", "cap": 3.0}},
        {"loss": {"surrogate": "sapo", "dual_clip": None}},
        {"returns": {"epsilon": 1e-4, "deviation": "sample", "entropy_scale": 0.5}},
        {"advantage": "rloo", "returns": {"epsilon": 1e-4, "hybrid_scale": 0.1}},
        {"advantage": "maxrl", "returns": {"deviation": "sample", "hybrid_scale": 0.1}},
        {"advantage": "gae", "returns": {"trace": 0.9}, "critic": {"lr": 1e-3}},
        {"optimizer": {"schedule": "cosine", "min_lr": 1e-7}},
        {**_LOGISTIC, "pairs": {"name": "all", "beta": 0.5}},
        {**_SQUARED, "pairs": {"eta": 0.1, "reference_share": 0.5, "opponents": {"every": 5}}},
    ],
)
def test_what_is_read_may_be_set(trainer: dict[str, Any]) -> None:
    assert faults(trainer) == []


def test_a_setting_of_the_run_is_read_if_one_of_its_policies_does() -> None:
    run, coder = {"returns": {"trace": 0.9}}, {"advantage": "gae"}
    assert faults(run, coder=coder) == []
    assert [line.split(":")[0] for line in faults(run, coder={})] == ["trainer.returns.trace"]


def test_a_setting_of_a_further_policy_is_read_beside_those_of_the_run() -> None:
    assert faults({"advantage": "gae"}, coder={"critic": {"lr": 1e-3}}) == []
    [line] = faults({"advantage": "gae"}, coder={"advantage": "grpo", "critic": {"lr": 1e-3}})
    assert line.startswith("policies.coder.trainer.critic.lr: nothing reads it")


@pytest.mark.parametrize("check", [before_training, before_recorded_training])
def test_no_training_starts_with_one(check: Any, tmp_path: Path) -> None:
    lines = faults_of(changed(run_values(tmp_path), "trainer", critic={"lr": 1e-3}), check)
    assert any(line.startswith("trainer.critic.lr: nothing reads it") for line in lines)


@pytest.mark.parametrize("name", RUNS)
def test_each_run_of_the_table_reads_all_that_it_sets(name: str) -> None:
    config = parse(RUNS[name].values(Path("out"), Path("/nowhere/data"), Path("teacher")))
    assert list(unread_faults(config)) == []


def test_each_setting_that_has_readers_is_one() -> None:
    section = TrainerSection()
    for path in READERS:
        *above, name = path
        for part in above:
            section = getattr(section, str(part))
        assert name in type(section).model_fields
        section = TrainerSection()


@pytest.mark.parametrize(
    ("share", "forks", "advantage", "begins"),
    [
        (0.25, "middle", "grpo", None),
        (0.25, "playback", "turn", None),
        (0, "none", "gdpo", None),
        (0.25, "none", "grpo", "agents.forks: pacing.forks_live needs an agent that can go on"),
        (0.25, "middle", "gdpo", "trainer.advantage: gdpo compares each named reward"),
    ],
)
def test_live_forks_need_an_agent_that_declares_them(
    share: float, forks: str, advantage: str, begins: str | None
) -> None:
    sections = {"pacing": {"forks_live": share}, "agents": {"forks": forks}}
    config = parse({**sections, "trainer": {"advantage": advantage}})
    lines = [fault.line(as_written) for fault in live_fork_faults(config)]
    assert [line.startswith(begins or "") for line in lines] == [True] * (begins is not None)
