"""Simulations of a configuration, as it is and with changes."""

from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection
from seamlessflow.reports.variant import Variant, cluster_of, settings_of, simulated

CONFIG: RunConfig = parse(
    {
        "run": {"steps": 4, "groups_per_step": 2, "group_size": 2, "lag": 1},
        "scheduler": {"gang_size": 8},
        "simulation": {"workload": {"turns": 1, "turn_tokens": 50}},
    }
)


def test_without_changes_a_configuration_is_simulated_as_it_is() -> None:
    run, settings = simulated(CONFIG)

    assert (settings.run, settings.scheduler) == (CONFIG.run, CONFIG.scheduler)
    assert len(run.tokens) == 4


def test_changes_count_for_one_simulation() -> None:
    changes = Variant(run={"lag": 0, "steps": 3}, scheduler={"policy": "colocated"})
    done = list[int]()
    run, settings = simulated(CONFIG, changes, done.append)

    assert (settings.run.lag, settings.scheduler.policy) == (0, "colocated")
    assert (settings.scheduler.gang_size, CONFIG.run.lag) == (8, 1)
    assert (len(run.tokens), done) == (3, [1, 2, 3])


def test_other_workers_and_a_gang_of_all_of_them() -> None:
    lot = SimulatedWorkersSection(count=3, tags=("rollout", "train"), devices=2)
    changes = Variant(scheduler={"gang_size": None}, workers=(lot,))

    assert settings_of(CONFIG, changes).scheduler.gang_size is None
    assert [worker.devices for worker in cluster_of(CONFIG, changes).workers.values()] == [2] * 3


def test_groups_that_a_filter_drops_are_not_trained() -> None:
    dropped = Variant(filtered=lambda group: group.endswith("1"))
    run, _ = simulated(CONFIG, dropped)

    kinds = [type(record).__name__ for record in run.control]
    assert "GroupDropped" in kinds
    assert "GroupDropped" not in [type(record).__name__ for record in simulated(CONFIG)[0].control]
