"""The command `seamlessflow plan`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app

WORK = ["--rollout-s", "900", "--train-s", "300", "--devices", "64"]


def plan(*options: str) -> Result:
    return CliRunner().invoke(app, ["plan", *options])


def test_given_work_is_compared_by_strategy_split_and_lag() -> None:
    done = plan(*WORK, "--train-devices", "8")

    head, *rows, _, tags, staleness = done.stdout.splitlines()
    assert head.split() == ["strategy", "train", "on", "lag", "step", "s", "idle", "limit"]
    assert [row.split()[:7] for row in rows if "multiplexed" in row] == [
        ["multiplexed", "8", "of", "64", "0", "51.56", "64%"],
        ["multiplexed", "8", "of", "64", "1", "37.50", "50%"],
        ["multiplexed", "16", "of", "64", "1", "18.75", "0%"],
        ["multiplexed", "64", "of", "64", "0", "18.75", "0%"],
    ]
    assert "needs 16 of 64 devices in its gang to leave none idle, and 8 are in the gang" in tags
    assert "multiplexed with lag 1 and 16 devices that train takes 18.8 s a step" in tags
    assert "lag 1 trains tokens up to 1 step old, at 37.5 s: 27% less" in staleness


def test_where_groups_take_long_no_tag_helps() -> None:
    done = plan(*WORK, "--group-s", "100")

    assert "no split makes the step of 50 s shorter by 3%: its groups take so long" in done.stdout


def test_each_lag_has_its_best_split_and_advice_is_for_the_one_that_was_asked() -> None:
    done = plan(*WORK, "--train-devices", "8", "--lag", "0")

    rows = [row.split()[:6] for row in done.stdout.splitlines()]
    assert ["disaggregated", "23", "of", "64", "0", "34.99"] in rows
    assert "multiplexed with lag 0 and 64 devices that train takes 18.8 s a step" in done.stdout


def test_a_gang_that_leaves_devices_idle_is_not_said_to_leave_none() -> None:
    done = plan(*WORK, "--switch-s", "30", "--load-s", "5")

    assert "leave none idle" not in done.stdout
    assert "needs 16 of 64 devices in its gang for training, and even so leaves" in done.stdout


def test_a_gain_of_less_than_three_per_cent_is_no_advice() -> None:
    done = plan(*WORK, "--train-devices", "64", "--switch-s", "0.5")

    assert "no split makes the step of 19.2 s shorter by 3%" in done.stdout
    assert "its limit is work, and of all device time it costs switches 3%" in done.stdout


def test_times_of_a_thousand_seconds_are_written_in_full() -> None:
    done = plan("--rollout-s", "9000", "--train-s", "3000", "--devices", "4")

    assert "the step of 3,000 s" in done.stdout


def test_colocated_gains_nothing_by_lag() -> None:
    assert "lag gains it nothing" in plan(*WORK, "--strategy", "colocated").stdout


def test_a_configuration_is_simulated(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "run: {groups_per_step: 2, group_size: 2}\n"
        "simulation:\n"
        "  workload: {turns: 1, turn_tokens: 50}\n"
        "  workers: [{count: 2, tags: [rollout, train]}]\n"
        "policies: {coder: {}}\n"
        "agents: {modules: {code: coder}}\n"
        "workers: [{id: w0}, {id: w1, policy: coder}]\n"
    )
    done = plan("--config", str(file))

    workers, model, measured, _, _, head, *rows, note, _, tags, staleness = done.stdout.splitlines()
    assert workers.startswith("workers of simulation.workers: 2 x 8 H100 with the tags rollout")
    modelled = "modelled: Qwen3-8B (default; policy.model is not set) on H100 (default); "
    assert model.startswith(f"{modelled}sessions of 1 turn of 50 tokens in the mean")
    assert note.endswith("the simulated figures count, of 20 steps each")
    assert "left out: coder" in done.stderr

    assert measured.startswith("measured over 6 steps")
    assert head.split()[-3:] == ["s", "idle", "staleness"]
    assert {row.split()[0] for row in rows} == {"colocated", "disaggregated", "multiplexed"}
    assert all(len(row.split()) >= 11 for row in rows), "each has figures of its simulation"
    assert "T/(R+T)" in tags and staleness.startswith("Staleness")


EVEN = """
run: {groups_per_step: 8, group_size: 8}
scheduler: {policy: multiplexed, min_dwell_s: 0}
simulation:
  rows: 1
  workload: {turns: 1, turn_tokens: 10, prompt_tokens: 1, spread: 0, prompt_effect: 0, tool_s: 0}
  workers:
    - {count: 2, tags: [rollout, train], devices: 1}
    - {count: 6, tags: [rollout], devices: 1}
device_model:
  rates: {weights_s: 0, row_s: 0.09375, context_s: 0, prompt_s: 0, prompt_context_s: 0, load_s: 0,
    train_s: 0.02840909, train_context_s: 0, leave_s: 0, take_s: 0, sleep_s: 0, wake_s: 0}
"""
"""A step rolls out for 60 and trains for 20 device seconds, on 8 devices."""


def test_neither_the_fill_nor_the_end_of_a_simulated_run_counts(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(EVEN)
    _, _, measured, idle, *rows = plan("--config", str(file)).stdout.splitlines()

    assert "steps of 10.3 s: R 60.1 and T 20 device seconds a step" in measured
    assert idle.startswith("idle 2%")
    (now,) = (
        row.split() for row in rows if row.split()[:2] == ["multiplexed", "2"] and " 1 " in row
    )
    assert now[-2] == "2%"


MIXED = """
run: {groups_per_step: 4, group_size: 8}
scheduler: {policy: multiplexed}
simulation:
  workload: {turns: 2, turn_tokens: 1000, tool_tokens: 1000}
  workers:
    - {count: 2, tags: [rollout, train], devices: 8, hardware: H20}
    - {count: 1, tags: [rollout, train], devices: 8, hardware: H800}
"""


def test_gangs_of_mixed_devices_are_tried_from_the_fastest_and_the_best_one_is_advised(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(MIXED)
    _, _, order, *rows, advice, _ = plan("--config", str(file)).stdout.splitlines()

    assert order.endswith("that train fastest first: 1 x 8 H800, 2 x 8 H20")
    cells = [row.split() for row in rows if row.split()[2:3] == ["of"]]
    tried = {
        int(row[1]): float(row[-3]) for row in cells if row[0] == "multiplexed" and row[4] == "1"
    }
    assert min(tried, key=lambda gang: tried[gang]) == 8 and list(tried) == [8, 16, 24]
    assert "lag 1 and 8 devices that train takes" in advice


SMALL = """
run: {groups_per_step: 2, group_size: 2}
simulation:
  workload: {turns: 1, turn_tokens: 50}
  workers: [{count: 4, tags: [rollout, train], devices: 8}]
"""


@pytest.mark.parametrize("policy", ["disaggregated", "multiplexed"])
def test_the_configured_gang_is_the_present_one(tmp_path: Path, policy: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"{SMALL}scheduler: {{policy: {policy}, gang_size: 8}}\n")
    *rows, _, tags, _ = plan("--config", str(file)).stdout.splitlines()

    assert [policy, "8", "of", "32"] in [row.split()[:4] for row in rows]
    assert "8 are in the gang of now" in tags


def test_a_choice_whose_gang_has_no_room_is_noticed_once(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    settings = "device_model: {model: Qwen3-14B}\nscheduler: {gang_size: 2}\n"
    file.write_text(SMALL.replace("devices: 8", "devices: 2") + settings)
    (notice,) = plan("--config", str(file)).stderr.splitlines()

    assert notice.startswith("! Qwen3-14B has no room on a gang of 2 devices")


@pytest.mark.parametrize("policy", ["adaptive", "bidirectional"])
def test_a_strategy_without_a_closed_form_is_simulated(tmp_path: Path, policy: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"{SMALL}scheduler: {{policy: {policy}}}\n")
    *rows, _, tags, staleness = plan("--config", str(file)).stdout.splitlines()

    choices = [row.split() for row in rows if policy in row]
    assert [cells[1:7] for cells in choices] == [
        ["its", "choice", lag, "-", "-", "-"] for lag in ("0", "1")
    ]
    assert all(float(cells[7]) > 0 for cells in choices)
    assert "step" in tags and f"Staleness: {policy}" in staleness


@pytest.mark.parametrize("policy", ["disaggregated", "multiplexed"])
def test_a_configuration_that_makes_no_step_has_the_fault_that_simulate_tells(
    tmp_path: Path, policy: str
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        f"scheduler: {{policy: {policy}, gang_size: 64}}\n"
        "workers: [{id: a, tags: [rollout, train]}]\n"
    )
    error = plan("--config", str(file)).exception

    assert "scheduler.gang_size is 64; devices with the tag train: 1" in str(error)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "give one of"),
        ([*WORK, "--kafka"], "give one of"),
        (["--rollout-s", "3"], "go together"),
        (["--rollout-s", "0", "--train-s", "0", "--devices", "2"], "go together"),
        ([*WORK, "--train-devices", "65"], "there are 64 devices"),
        (
            [*WORK, "--train-devices", "64", "--strategy", "disaggregated"],
            "one more that rolls out",
        ),
        ([*WORK, "--strategy", "disaggregated"], "--train-devices 64: there are 64 devices"),
        (
            ["--rollout-s", "9", "--train-s", "3", "--devices", "1", "--strategy", "disaggregated"],
            "disaggregated needs one more that rolls out",
        ),
        ([*WORK, "--train-devices", "8", "--strategy", "colocated"], "all 64 devices train"),
        ([*WORK, "--strategy", "mine"], "a plan knows"),
        ([*WORK, "--strategy", "adaptive"], "with --config all that simulate knows"),
        (["--config", "none.yaml", "--strategy", "os:getcwd"], "it raised TypeError"),
        (["--rollout-s", "inf", "--train-s", "300", "--devices", "64"], "inf s is neither 0 nor"),
        (["--rollout-s", "nan", "--train-s", "300", "--devices", "64"], "nan s is neither 0 nor"),
        ([*WORK, "--switch-s", "1e300"], "1e+300 s is neither 0 nor 1e-06 to 1e+12 s"),
        ([*WORK, "--load-s", "-1"], "-1 s is neither 0 nor"),
        ([*WORK, "--lag", "1" + 400 * "0"], "less than or equal"),
        (
            ["--rollout-s", "1", "--train-s", "1", "--devices", "1" + 400 * "0"],
            "a number of 1 to 100000",
        ),
    ],
)
def test_wrong_input_is_refused(options: list[str], reason: str) -> None:
    done = plan(*options)

    assert done.exit_code == 2
    assert reason in " ".join(done.output.replace("│", " ").split())


def test_a_configuration_that_trains_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("simulation: {workers: [{count: 2, tags: [rollout]}]}")

    assert "no worker has the tag train" in str(plan("--config", str(file)).exception)


def test_without_simulated_workers_those_of_the_run_are_planned(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "run: {groups_per_step: 2, group_size: 2}\n"
        "workers: [{id: a, tags: [rollout, train], devices: [0, 1]}, {id: b}]\n"
        "simulation: {workload: {turns: 1, turn_tokens: 50}}\n"
    )

    taken, *_, tags, _ = plan("--config", str(file), "--lag", "0").stdout.splitlines()

    assert taken.startswith("the run's own workers: 1 x 2 H100 with the tags rollout and train")
    assert "of 3 devices" in tags
