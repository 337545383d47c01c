"""A split's simulation: a strategy on a modelled cluster, as it is or with other tags.

Called by `seamlessflow plan`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, groupby
from statistics import fmean

from seamlessflow.config import RunConfig
from seamlessflow.infra.device_model.presets import hardware_named
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.lab.simulation.cluster import ModelledCluster
from seamlessflow.lab.simulation.figures import (
    WARM_UP_STEPS,
    SimulatedFigures,
    figures,
    why_none,
)
from seamlessflow.lab.simulation.measured_step import MeasuredStep, measured_step
from seamlessflow.lab.simulation.settings import SimulatedWorkersSection
from seamlessflow.lab.simulation.split_plan import PlannedCluster, SplitChoice
from seamlessflow.reports.simulated_workers import held_back, without_room
from seamlessflow.reports.variant import Variant, cluster_of, simulated
from seamlessflow.scheduler.state.accounts.closed_form import COLOCATED, DISAGGREGATED

BOTH = ("rollout", "train")
ROLLOUT = ("rollout",)
TRAIN = ("train",)
STEPS, MOST_STEPS = 8, 20
"""Fewest and most steps in a simulation."""
_TURNS = 200_000
"""Turns in all simulations for a plan, unless `STEPS` steps need more. They bound its time to some
ten seconds on a core at rest.
"""
_GANGS = 8
"""Most gangs that are tried for a strategy, besides the present one and the closed form's."""


class NothingToPlan(SeamlessFlowError):
    """A configuration as it is makes too few steps in the simulator."""

    lasting = True

    def __init__(self, strategy: str, why: str) -> None:
        self.strategy = strategy
        self.why = why
        super().__init__(f"{strategy}: {why}")


def present_step(config: RunConfig, strategy: str, lag: int) -> MeasuredStep:
    """Return the mean step in the configuration as it is. Raises `NothingToPlan`."""
    present = Variant(run={"lag": lag, "steps": STEPS}, scheduler={"policy": strategy})
    run, settings = simulated(config, present)
    if figures(run, settings) is None:
        raise NothingToPlan(strategy, why_none(run, settings))
    return measured_step(run.control, WARM_UP_STEPS)


def simulated_choice(
    config: RunConfig, planned: PlannedCluster, choice: SplitChoice, steps: int
) -> tuple[SimulatedFigures | None, tuple[str, ...]]:
    """Return a choice's figures, None if it did not make all its steps, and notices.

    The notices name missing room for its gang and, for the present choice, missing places for its
    sessions.
    """
    present = (choice.strategy, choice.gang) == (planned.strategy, planned.gang)
    variant = Variant(
        run={"lag": choice.lag, "steps": steps}, scheduler={"policy": choice.strategy}
    )
    if not present:
        # All workers with the tag make the gang: how many have it is what is planned.
        workers = split(ordered(config), choice.strategy, choice.gang)
        scheduler = {**variant.scheduler, "gang_size": None}
        variant = replace(variant, scheduler=scheduler, workers=tuple(workers))
    run, settings = simulated(config, variant)
    room = without_room(config.device_model, cluster_of(config, variant), run.control)
    held = held_back(config, run) if present and choice.lag == planned.lag else ""
    return figures(run, settings), (room, held)


def change_s(cluster: ModelledCluster) -> float:
    """Return the modelled time for a role change there and back, as the mean over all workers."""
    rates = [worker.rates for worker in cluster.workers.values()]
    return fmean(rate.sleep_s + rate.take_s + rate.leave_s + rate.wake_s for rate in rates)


def tried_gangs(config: RunConfig) -> list[int]:
    """Return the gangs to try, in devices: each gang takes the first workers in their order.

    They are the gangs that end with a kind of worker, and others at even distances; fewer if a step
    has many turns.
    """
    workers = ordered(config)
    sizes = list(accumulate(worker.devices for worker in workers))
    kinds = accumulate(
        len(list(group)) for _, group in groupby(workers, lambda worker: worker.hardware)
    )
    most = min(_GANGS, int(_TURNS / STEPS / _turns(config) / 2))
    places = {number - 1 for number in kinds}
    spread = {round(number * len(sizes) / most) - 1 for number in range(1, most + 1)}
    if most >= len(sizes):
        places = set(range(len(sizes)))
    return sorted({sizes[place] for place in (places | spread if most else ()) if place >= 0})


def steps_each(config: RunConfig, simulations: int) -> int:
    """Return each simulation's steps: the run's, within limits."""
    affordable = int(_TURNS / _turns(config) / simulations)
    return max(STEPS, min(config.run.steps, MOST_STEPS, affordable))


def ordered(config: RunConfig) -> list[SimulatedWorkersSection]:
    """Return the workers singly, in the order in which a gang takes them.

    Those that train fastest come first, and among equals those that have the tag now.
    """

    def order(worker: SimulatedWorkersSection) -> tuple[float, bool]:
        device = hardware_named(worker.hardware or config.device_model.hardware)
        return -device.peak_flops, "train" not in worker.tags

    each = (worker.model_copy(update={"count": 1}) for worker in _each(config.simulation.workers))
    return sorted(each, key=order)


def kinds_in_order(config: RunConfig) -> str:
    """Return a line about the order in which a gang takes workers; empty if all are of one kind."""
    kinds = Counter((worker.devices, worker.hardware or "") for worker in ordered(config))
    if len({hardware for _, hardware in kinds}) == 1:
        return ""
    default = config.device_model.hardware
    text = ", ".join(f"{n} x {devices} {name or default}" for (devices, name), n in kinds.items())
    return f"another gang takes the workers that train fastest first: {text}"


def split(
    workers: Iterable[SimulatedWorkersSection], strategy: str, gang: int
) -> list[SimulatedWorkersSection]:
    """Return the workers with tags; the first ones make the gang.

    The gang has `gang` devices, or as few more as whole workers allow.
    """
    placed = list[SimulatedWorkersSection]()
    before = 0
    for worker in workers:
        tags = _tags(strategy, before < gang)
        placed.append(worker.model_copy(update={"tags": tags}))
        before += worker.devices
    return placed


def _tags(strategy: str, in_gang: bool) -> tuple[str, ...]:
    if strategy == COLOCATED:
        return BOTH
    if not in_gang:
        return ROLLOUT
    return TRAIN if strategy == DISAGGREGATED else BOTH


def _each(lots: Iterable[SimulatedWorkersSection]) -> Iterable[SimulatedWorkersSection]:
    return (lot for lot in lots for _ in range(lot.count))


def _turns(config: RunConfig) -> float:
    """Return a step's turns."""
    run = config.run
    return run.groups_per_step * run.group_size * config.simulation.workload.turns
