from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_settings import BaseSettings

from seamlessflow.config_file import parse
from seamlessflow.consumers.trajectories.bootstrap import judge_terms
from seamlessflow.consumers.trajectories.decisions.context import JudgeTerms
from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.gateway.calls.keys import Keys
from seamlessflow.producers.gateway.settings import GatewaySettings
from seamlessflow.producers.rollout.hosting import hosted
from seamlessflow.producers.rollout.settings import (
    HostedWorkerSection,
    RolloutSection,
    RolloutSettings,
)
from seamlessflow.recorded.judging.settings import RewardsSection, RewardWorkerSettings
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.run_files import model_headers

KAFKA = KafkaSettings(bootstrap_servers="127.0.0.1:1", options={"sasl.password": "hidden"})
WORKERS = [
    {"id": "w0", "tags": ["rollout"]},
    {"id": "w1", "tags": ["rollout", "train"], "environment": {"CUDA_VISIBLE_DEVICES": "1"}},
]


def children(**values: Any) -> ProcessSpecs:
    config = parse(
        {"out": "there", "agents": {"callable": "my.agent:run"}, "workers": WORKERS, **values}
    )
    inherited = {"PATH": "/bin", "SEAMLESSFLOW_RUN__STEPS": "99"}
    return ProcessSpecs(config, LaunchContext(KAFKA, gateway_port=8123, environment=inherited))


def settings_of(spec: ChildSpec, kind: type[BaseSettings], patch: pytest.MonkeyPatch) -> Any:
    """The settings that the process would read from its environment."""
    with patch.context() as changed:
        for name in _names(spec.environment):
            changed.setenv(name, spec.environment[name])
        return kind()


def _names(environment: Mapping[str, str]) -> list[str]:
    return [name for name in environment if name.startswith("SEAMLESSFLOW_")]


def test_the_trainer_and_its_ranks_start_again_together_and_others_alone() -> None:
    made = children()
    assert {(spec.supervised, spec.gang) for spec in made.trainers()} == {(True, "trainers")}
    alone = [made.gateway(), made.manager(), made.agents(), made.scheduler(), *made.rollouts()]
    assert {(spec.supervised, spec.gang) for spec in alone} == {(True, "")}


def test_the_trainer_runs_on_the_machine_of_the_first_rank() -> None:
    here = {"workers": [{"id": "w", "tags": ["train"], "devices": [0, 1]}]}
    gang = {"backend": "fsdp2", "ranks": 4}
    first = children(**here, trainer=gang).trainers()
    assert [(spec.name, spec.module) for spec in first] == [
        ("trainer", "seamlessflow.trainer"),
        ("trainer-w", "seamlessflow.trainer.ranks"),
    ]
    second = children(**here, trainer={**gang, "rank": 2}).trainers()
    assert [spec.name for spec in second] == ["trainer-w"]


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({}, None),
        ({"trainer": {"backend": "fsdp2", "ranks": 4}}, 4),
        ({"trainer": {"backend": "clock", "ranks": 4}, "scheduler": {"gang_size": 8}}, 8),
        ({"trainer": {"backend": "fsdp2", "ranks": 2}, "policies": {"b": {}}}, 2),
        ({"policies": {"b": {"trainer": {"backend": "fsdp2", "ranks": 2}}}}, None),
    ],
)
def test_the_scheduler_forms_gangs_of_all_ranks_so_that_none_trains_without_a_lost_one(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], size: int | None
) -> None:
    scheduler = settings_of(children(**values).scheduler(), SchedulerSettings, monkeypatch)
    assert scheduler.scheduler.gang_size == size


def test_every_process_reads_back_what_the_configuration_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = children(
        run={"steps": 7, "policy": "mine"},
        trainer={"optimizer": {"lr": 0.5}},
        gateway={"api_keys": {"team": "sk-team"}},
    )
    gateway = settings_of(made.gateway(), GatewaySettings, monkeypatch).gateway
    assert (gateway.port, gateway.models, gateway.policy) == (8123, ("mine",), "mine")
    assert gateway.api_keys["team"].get_secret_value() == "sk-team"
    assert settings_of(made.manager(), ManagerSettings, monkeypatch).kafka == KAFKA
    leads, trainer = [settings_of(spec, TrainerSettings, monkeypatch) for spec in made.trainers()]
    assert (leads.run.steps, leads.trainer.optimizer.lr) == (7, 0.5)
    assert (trainer.run.steps, trainer.trainer.optimizer.lr) == (7, 0.5)
    assert (trainer.trainer.worker, trainer.trainer.tags) == ("w1", ("rollout", "train"))
    scheduler = settings_of(made.scheduler(), SchedulerSettings, monkeypatch)
    assert (scheduler.run.steps, str(scheduler.data_dir)) == (7, "there")


def test_the_manager_and_the_workers_have_the_same_rule_of_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = {"name": "repetition", "settings": {"period": 8}, "reward": None}
    made = children(rollout={"control": rule})
    manager = settings_of(made.manager(), ManagerSettings, monkeypatch).rollout.control
    worker = settings_of(made.rollouts()[0], RolloutSettings, monkeypatch).rollout.control
    assert manager == worker
    assert (manager.name, manager.settings, manager.reward) == ("repetition", {"period": 8}, None)


def test_each_worker_has_its_rollout_process(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = children().rollouts()
    assert [spec.name for spec in specs] == ["rollout-w0", "rollout-w1"]
    read = [settings_of(spec, RolloutSettings, monkeypatch).rollout for spec in specs]
    assert [section.tags for section in read] == [("rollout",), ("rollout", "train")]
    assert specs[1].environment["CUDA_VISIBLE_DEVICES"] == "1"


def test_workers_on_modelled_devices_share_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[dict[str, Any]] = [{"id": f"w{number}", "devices": [0, 1]} for number in range(3)]
    trains = {"id": "w4", "tags": ["rollout", "train"]}
    workers += [{"id": "own", "environment": {"SOME": "thing"}}, trains]
    clock = {"engine": "clock", "clock": {"workers_a_process": 3}}

    specs = children(workers=workers, rollout=clock).rollouts()

    assert [spec.name for spec in specs] == ["rollout-own", "rollout-w0", "rollout-w4"]
    shared = hosted(settings_of(specs[1], RolloutSettings, monkeypatch))
    assert [settings.rollout.worker for settings in shared] == ["w0", "w1", "w2"]
    assert [settings.rollout.devices for settings in shared] == [(0, 1)] * 3
    assert not any(settings.rollout.hosted for settings in shared)
    assert len(children(workers=workers, rollout={**clock, "engine": "torch"}).rollouts()) == 5


def test_workers_with_a_device_share_no_process() -> None:
    other = RolloutSection(hosted=(HostedWorkerSection(worker="w1"),))

    with pytest.raises(SettingsRejected, match="HOSTED"):
        hosted(RolloutSettings(rollout=other))


def test_a_workers_device_is_the_device_of_both_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = children(workers=[{"id": "w", "tags": ["rollout", "train"], "device": "cuda:1"}])
    rollout = settings_of(made.rollouts()[0], RolloutSettings, monkeypatch)
    trainer = settings_of(made.trainers()[1], TrainerSettings, monkeypatch)
    assert (rollout.rollout.torch.device, trainer.trainer.device) == ("cuda:1", "cuda:1")


def test_the_torch_engine_is_as_long_as_the_policys_context_if_no_length_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = {"max_context": 768}
    spec, *_ = children(policy=policy).rollouts()
    assert settings_of(spec, RolloutSettings, monkeypatch).rollout.torch.max_length == 768
    spec, *_ = children(policy=policy, rollout={"torch": {"max_length": 512}}).rollouts()
    assert settings_of(spec, RolloutSettings, monkeypatch).rollout.torch.max_length == 512


@pytest.mark.parametrize(
    ("positions", "named", "length"),
    [(1024, {}, 768), (512, {}, None), (1024, {"max_length": 512}, 512)],
)
def test_vllm_is_as_long_as_the_policys_context_unless_the_model_is_shorter(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    positions: int,
    named: Mapping[str, int],
    length: int | None,
) -> None:
    model = model_headers(tmp_path, max_position_embeddings=positions)
    policy = {"max_context": 768, "model": str(model)}
    spec, *_ = children(policy=policy, rollout={"engine": "vllm", "vllm": named}).rollouts()
    assert settings_of(spec, RolloutSettings, monkeypatch).rollout.vllm.max_length == length


def test_vllm_sees_the_device_of_its_worker_alone() -> None:
    worker = {"id": "w", "tags": ["rollout", "train"], "device": "cuda:1"}
    made = children(workers=[worker], rollout={"engine": "vllm"})
    assert made.rollouts()[0].environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in made.trainers()[1].environment
    several = {**worker, "device": "cuda", "devices": [2, 3]}
    rollout = children(workers=[several], rollout={"engine": "vllm"}).rollouts()[0]
    assert rollout.environment["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_the_agents_hold_the_key_that_the_gateway_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = children()
    gateway = settings_of(made.gateway(), GatewaySettings, monkeypatch).gateway
    agents = settings_of(made.agents(), AgentsSettings, monkeypatch).agents
    key = agents.admin_key.get_secret_value().encode()
    assert Keys(gateway.secret.get_secret_value()).is_admin(key)
    assert agents.gateway_url == "http://127.0.0.1:8123"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("::1", "http://[::1]:8123"),
        ("::", "http://[::1]:8123"),
        ("0.0.0.0", "http://127.0.0.1:8123"),
        ("10.0.0.7", "http://10.0.0.7:8123"),
    ],
)
def test_the_agents_call_the_gateway_where_it_listens(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    spec = children(gateway={"host": host}).agents()
    assert settings_of(spec, AgentsSettings, monkeypatch).agents.gateway_url == url


JUDGED = {
    "trainer": {"rewards": {"reward": 1.0, "kind": 0.5}},
    "rewards": {"judges": {"kind": {"callable": "my.judges:kind"}}, "workers": 2, "wait_s": 30},
}


def test_a_run_with_judges_has_reward_workers_and_all_know_whom_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = children(**JUDGED)
    workers = made.reward_workers()
    assert [(spec.name, spec.supervised) for spec in workers] == [
        ("rewards-0", True),
        ("rewards-1", True),
    ]
    judges = settings_of(workers[0], RewardWorkerSettings, monkeypatch).rewards.judges
    assert judges["kind"].callable == "my.judges:kind"
    manager = settings_of(made.manager(), ManagerSettings, monkeypatch)
    assert judge_terms(manager) == JudgeTerms(("kind",), 30_000)
    assert settings_of(made.scheduler(), SchedulerSettings, monkeypatch).rewards.wait_s == 30
    agents = settings_of(made.agents(), AgentsSettings, monkeypatch).agents
    assert agents.rewards == ("reward",)


def test_the_key_of_a_model_that_judges_is_given_to_reward_workers_alone() -> None:
    model = {"url": "http://there/v1", "name": "m", "prompt": "$answer", "api_key": "sk-judge"}
    made = children(rewards={"judges": {"reward": {"model": model}}})
    (worker,) = made.reward_workers()
    assert "sk-judge" in worker.environment["SEAMLESSFLOW_REWARDS"]
    others = [made.manager(), made.scheduler(), made.agents(), made.gateway(), *made.trainers()]
    assert not any("sk-judge" in "".join(spec.environment.values()) for spec in others)
    assert "sk-judge" not in repr(worker)


def test_reward_workers_get_the_gateway_and_its_key_where_a_policy_judges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rewards(model: dict[str, str]) -> RewardsSection:
        judges = {"reward": {"model": {"prompt": "$answer", **model}}}
        made = children(rewards={"judges": judges}, gateway={"admin_key": "sf-admin-mine"})
        (worker,) = made.reward_workers()
        assert "sf-admin-mine" not in repr(worker)
        section: RewardsSection = settings_of(worker, RewardWorkerSettings, monkeypatch).rewards
        return section

    judged = rewards({"policy": "referee"})
    assert judged.admin_key.get_secret_value() == "sf-admin-mine"
    assert judged.gateway_url == children().gateway_url
    assert not rewards({"url": "http://there/v1", "name": "m"}).admin_key.get_secret_value()


def test_a_run_without_judges_has_no_reward_workers_and_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = children()
    assert made.reward_workers() == []
    assert judge_terms(settings_of(made.manager(), ManagerSettings, monkeypatch)) == JudgeTerms()


def test_the_agents_know_the_rewards_that_any_trainer_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coder = {"trainer": {"rewards": {"test": 0.5, "style": 1.0}}}
    made = children(
        trainer={"rewards": {"test": 1.0, "format": 0.0}},
        run={"policy": "planner"},
        policies={"coder": coder},
    )
    agents = settings_of(made.agents(), AgentsSettings, monkeypatch).agents
    assert agents.rewards == ("test", "style")
    assert settings_of(children().agents(), AgentsSettings, monkeypatch).agents.rewards == (
        "reward",
    )


def test_settings_of_this_process_do_not_leak_into_another() -> None:
    spec = children().manager()
    assert "SEAMLESSFLOW_RUN__STEPS" not in spec.environment
    assert spec.environment["PATH"] == "/bin"


def test_the_measuring_scheduler_issues_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = children(pacing={"tasks": "tasks.jsonl"}, run={"steps": 7})
    scheduler = settings_of(made.scheduler_without_tasks(), SchedulerSettings, monkeypatch)
    assert (scheduler.pacing.tasks, scheduler.run.steps) == (None, 8)


def test_trainer_and_scheduler_may_come_to_an_end_by_themselves() -> None:
    made = children()
    assert [spec.finite for spec in [made.scheduler(), *made.trainers()]] == [True] * 3
    assert not any(spec.finite for spec in [made.gateway(), made.manager(), *made.rollouts()])
