"""A simulator calibrated on one strategy of real runs, against what another strategy took."""

from itertools import permutations

import pytest

from seamlessflow.config_file import parse
from seamlessflow.lab.calibration.recorded_run import Recorded
from seamlessflow.lab.calibration.sections import sections, under
from seamlessflow.lab.simulation.cluster import modelled
from seamlessflow.lab.simulation.figures import WARM_UP_STEPS, SimulatedFigures, figures
from seamlessflow.lab.simulation.simulator import simulate
from seamlessflow.lab.simulation.workload import Workload
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.scheduler.state.accounts.device_time import together
from seamlessflow.scheduler.state.timeline import timeline
from tests.calibration.kept_run import kept
from tests.calibration.strategies import STRATEGIES, Arrangement

WITHIN = 0.15
STEPS = 60
SWITCH = {"leave_s": 0.02, "take_s": 0.09, "sleep_s": 0.02, "wake_s": 0.09}
"""A change of role on such a machine, by `benchmarks switch`: a run without one shows none."""


@pytest.fixture(scope="module")
def runs() -> dict[str, Recorded]:
    return kept()


def predicted(calibrated: Recorded, arrangement: Arrangement) -> SimulatedFigures:
    """Return the figures of another strategy on the devices and work of a recorded run."""
    workers = [{"tags": [*tags], "devices": 1} for tags in arrangement.tags]
    chosen = {
        "simulation": {"workers": workers},
        "run": {"steps": STEPS, "lag": arrangement.lag},
        "scheduler": {"policy": arrangement.strategy},
    }
    rates = {"device_model": {"rates": SWITCH}}
    config = parse(under(chosen, under(sections(calibrated), rates)))
    settings = SchedulerSettings(run=config.run, scheduler=config.scheduler, pacing=config.pacing)
    workload = Workload(config.simulation.workload, config.simulation.seed)
    cluster = modelled(config.simulation, config.device_model, config.rollout.update)
    prediction = figures(simulate(settings, cluster, workload), settings)
    assert prediction is not None
    return prediction


def measured(run: Recorded) -> tuple[float, float]:
    """Return the step in seconds and the idle share, over the same steps as those predicted."""
    course = timeline(run.control)
    window = (course.steps[WARM_UP_STEPS - 1].at_ms, course.steps[-1].at_ms)
    idle = together(course.device_time(window).values()).idle_share
    return (window[1] - window[0]) / (len(course.steps) - WARM_UP_STEPS) / 1000, idle


@pytest.mark.parametrize(("calibrated", "other"), [*permutations(STRATEGIES, 2)])
def test_another_strategy_is_predicted(
    runs: dict[str, Recorded], calibrated: str, other: str
) -> None:
    step_s, idle = measured(runs[other])

    prediction = predicted(runs[calibrated], STRATEGIES[other])

    assert prediction.step_s == pytest.approx(step_s, rel=WITHIN)
    assert prediction.spent.idle_share == pytest.approx(idle, rel=WITHIN)
