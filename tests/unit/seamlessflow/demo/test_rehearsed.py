"""The demo's rehearsals: the same run by two strategies, which the simulator tells apart."""

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.demo.rehearsed import (
    DEVICES,
    STRATEGIES,
    TRAINING_DEVICES,
    rehearsed_config,
    write_work,
)
from seamlessflow.infra.device_model.presets import hardware_named, model_named
from seamlessflow.infra.device_model.rates import Efficiency
from seamlessflow.lab.simulation.settings import SimulationSection
from seamlessflow.lab.simulation.simulator import simulate
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.reports.simulated_workers import with_own_work, with_own_workers
from seamlessflow.reports.variant import cluster_of, settings_of
from seamlessflow.scheduler.state.accounts.device_time import DeviceTime, together
from seamlessflow.scheduler.state.timeline import timeline

WORKLOAD = {"turns": 1, "prompt_tokens": 20, "tool_tokens": 0, "tool_s": 0}
STEPS = 4


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunConfig]:
    out = tmp_path_factory.mktemp("rehearsed")
    write_work(out, seed=0)
    return {name: rehearsed_config(out, name, STEPS, check=None) for name in STRATEGIES}


def spent(config: RunConfig) -> DeviceTime:
    """Return the device time of the run, simulated to its end."""
    work = SimulationSection.model_validate({"workload": WORKLOAD})
    config = with_own_work(config.model_copy(update={"simulation": work}))
    section, _ = with_own_workers(config, None)
    config = config.model_copy(update={"simulation": section})
    workload = Workload(section.workload, section.seed)
    course = timeline(simulate(settings_of(config), cluster_of(config), workload).control)
    assert len(course.steps) == STEPS
    return together(course.device_time(course.training_ms).values())


def test_the_runs_differ_by_strategy_tags_and_directory_alone(
    configs: dict[str, RunConfig],
) -> None:
    (first, second) = configs.values()
    assert [config.out.name for config in (first, second)] == list(STRATEGIES)
    assert [config.scheduler.policy for config in (first, second)] == list(STRATEGIES)
    names = ("out", "scheduler", "gateway", "workers")
    changes = {name: getattr(first, name) for name in names}
    assert second.model_copy(update=changes) == first
    for config, tags in ((first, ("train",)), (second, ("rollout", "train"))):
        training = [worker.tags for worker in config.workers if "train" in worker.tags]
        assert training == [tags] * TRAINING_DEVICES
        assert sum(worker.device_count for worker in config.workers) == DEVICES


def test_the_model_is_trained_on_no_fewer_devices(configs: dict[str, RunConfig]) -> None:
    model = configs["multiplexed"].device_model
    kept = Efficiency().trained_bytes * model_named(model.model).parameters
    memory = Efficiency().memory * hardware_named(model.hardware).memory_bytes
    assert (TRAINING_DEVICES - 1) * memory < kept <= TRAINING_DEVICES * memory


def test_disaggregated_devices_idle_twice_as_long(configs: dict[str, RunConfig]) -> None:
    (disaggregated, multiplexed) = (spent(config) for config in configs.values())
    assert disaggregated.idle_share > 0.4
    assert multiplexed.idle_share < disaggregated.idle_share - 0.15
    assert multiplexed.total < disaggregated.total
