"""The command `seamlessflow simulate`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.scheduler.decisions.strategies.registry import STRATEGIES
from tests.builders.run_files import model_headers

FILE = """
run: {policy: planner, steps: 5, groups_per_step: 4, group_size: 4}
simulation:
  workload: {turns: 2, turn_tokens: 100}
device_model:
  rates: {leave_s: 0, take_s: 0, sleep_s: 0, wake_s: 0}
"""
TWO_POLICIES = """
policies: {coder: {}}
agents: {modules: {code: coder}}
workers: [{id: w0, tags: [rollout, train]}, {id: w1, policy: coder}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(FILE)
    return file


def test_each_strategy_is_one_line_of_figures(config: Path) -> None:
    done = CliRunner().invoke(app, ["simulate", "--config", str(config)])

    _, _, head, *lines = done.stdout.splitlines()
    assert head.split()[:4] == ["strategy", "step", "s", "ideal"]
    table = {line.split()[0]: line.split()[1:] for line in lines}
    assert list(table) == list(STRATEGIES)
    assert float(table["disaggregated"][-1]) == 0, "its workers never change their roles"
    assert float(table["colocated"][-1]) > 0


def test_policies_that_are_left_out_are_named(config: Path) -> None:
    config.write_text(FILE + TWO_POLICIES)
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), "--strategy", "colocated"])

    assert done.exit_code == 0
    assert "policy planner alone is simulated; left out: coder" in done.stderr


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ([], "Qwen3-8B (default; policy.model is not set) on H100 (default); measured"),
        (["--model", "Qwen3-14B"], "Qwen3-14B (device_model) on H100 (default)"),
        (["--hardware", "H20"], "on H20 (device_model); measured (device_model.rates): leave_s, "),
    ],
)
def test_model_and_devices_are_named_with_their_source(
    config: Path, options: list[str], source: str
) -> None:
    options = [*options, "--strategy", "colocated", "--steps", "3"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert source in done.stdout.splitlines()[1]


def test_limits_of_a_run_that_names_an_agent_count(config: Path) -> None:
    def figures(agents: str) -> tuple[str, float, str]:
        config.write_text(FILE + agents)
        options = ["--strategy", "colocated", "--steps", "3"]
        done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])
        _, model, _, line = done.stdout.splitlines()
        return model, float(line.split()[1]), done.stderr

    free, few = figures(""), figures('agents: {callable: "my:run", concurrency: 2}\n')
    # The modelled devices are GPUs, with their defaults.
    engine = "at most 256 turns an engine (rollout.capacity)"
    assert free[0].endswith(f"{engine}, any number of sessions")
    assert few[0].endswith(f"{engine}, 2 sessions (agents.concurrency)")
    assert few[1] > free[1]
    assert (free[2], "agents.concurrency 2 made sessions wait" in few[2]) == ("", True)


def test_the_model_of_the_policy_is_modelled_if_it_can_be_read(
    config: Path, tmp_path: Path
) -> None:
    model = model_headers(tmp_path / "model")
    for directory, beginning in (
        (model, f"modelled: {model} (policy.model)"),
        (tmp_path / "none", "modelled: Qwen3-8B (default; policy.model "),
    ):
        config.write_text(f"{FILE}policy: {{model: {directory}}}\n")
        options = ["--strategy", "colocated", "--steps", "3"]
        done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])
        assert done.stdout.splitlines()[1].startswith(beginning)


def test_options_count_over_the_file(config: Path) -> None:
    options = ["--both", "1", "--devices", "2", "--strategy", "colocated"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    (_, _, _, line) = done.stdout.splitlines()
    assert line.split()[0] == "colocated"


def test_tokens_recycled_stopped_and_over_age_are_shown_where_pacing_asks_for_them(
    config: Path,
) -> None:
    pacing = "pacing: {extra_groups: 1, redundancy: 1}\n"
    config.write_text(FILE.replace("turn_tokens: 100", "turn_tokens: 100, spread: 1.5") + pacing)
    options = ["--strategy", "colocated", "--lag", "0"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    _, _, head, line = done.stdout.splitlines()
    assert head.endswith("recycled   stopped  over age")
    shares = [float(cell.rstrip("%")) for cell in line.split()[-3:]]
    assert all(0 < share < 100 for share in shares)


def test_a_run_without_figures_says_which_setting_is_why(config: Path) -> None:
    config.write_text(FILE + "pacing: {task_timeout_s: 0.01, group_timeout_s: 1}\n")
    options = ["--strategy", "colocated"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert done.exit_code == 78
    assert "no figures: 0 of 5 steps" in done.stdout
    assert "longer than pacing.task_timeout_s (0.01 s" in done.stdout


WORKERS = """
workers:
  - {id: a, tags: [rollout, train, "hw:H100"], devices: [0, 1, 2, 3]}
  - {id: b, tags: [rollout], devices: [4, 5, 6, 7]}
  - {id: c, tags: [rollout], environment: {SEAMLESSFLOW_DEVICE_MODEL__HARDWARE: H20}}
"""


def test_without_simulated_workers_those_of_the_run_are_taken(config: Path) -> None:
    config.write_text(FILE + WORKERS)
    options = ["--strategy", "multiplexed"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    taken, _, _, line = done.stdout.splitlines()
    assert taken == (
        "the run's own workers: 1 x 4 H100 with the tags rollout and train, 1 x 4 H100 with the "
        "tag rollout, 1 x 1 H20 with the tag rollout"
    )
    assert line.split()[0] == "multiplexed"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("scheduler: {gang_size: 9}", "scheduler.gang_size is 9; devices with the tag train: 1"),
        ("", "no worker was assigned rollout: it needs workers with that tag alone"),
    ],
)
def test_a_strategy_that_cannot_make_a_step_says_why(config: Path, lines: str, reason: str) -> None:
    config.write_text(f"{FILE}{lines}\nworkers: [{{id: a, tags: [rollout, train]}}]")
    options = ["--strategy", "disaggregated"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert reason in done.stdout


def test_a_file_is_no_folder_for_timelines(config: Path) -> None:
    done = CliRunner().invoke(app, ["simulate", "--timelines", str(config)])

    assert (done.exit_code, done.stdout) == (2, "")
    assert "File exists" in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("model", "devices", "notice"),
    [
        ("Qwen3-8B", "2", ""),
        (
            "Qwen3-14B",
            "2",
            "! colocated: Qwen3-14B has no room on a gang of 2 devices, and is modelled all the "
            "same: to train it takes 237 GB (16 bytes a parameter), and they have 160 GB",
        ),
    ],
)
def test_a_gang_that_cannot_hold_what_it_trains_is_noticed(
    config: Path, model: str, devices: str, notice: str
) -> None:
    options = ["--both", "1", "--devices", devices, "--strategy", "colocated", "--model", model]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert (done.exit_code, done.stderr.strip()) == (0, notice)


def test_workers_of_the_simulation_count_over_those_of_the_run(config: Path) -> None:
    config.write_text(FILE + WORKERS)
    options = ["--both", "1", "--devices", "2", "--strategy", "colocated"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert "own workers" not in done.stdout


def test_a_run_whose_workers_cannot_train_is_refused(config: Path) -> None:
    config.write_text("workers: [{id: a, tags: [rollout]}]")
    done = CliRunner().invoke(app, ["simulate", "--config", str(config)])

    assert "workers: no worker of policy has the tag train" in str(done.exception)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--model", "none"], "no model 'none' is known"),
        (["--hardware", "none"], "no device 'none' is known"),
        (["--rollout", "2"], "no worker has the tag train"),
        (["--train", "2"], "no worker has the tag rollout"),
        (["--model", "Qwen2.5-72B", "--both", "1", "--devices", "1"], "needs 145 GB"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_the_table(
    config: Path, options: list[str], reason: str
) -> None:
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert done.stdout == ""
    assert reason in str(done.exception)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--strategy", "none"], "no strategy 'none'"),
        (["--strategy", "os:getcwd"], "of a snapshot it raised TypeError"),
        (["--strategy", "inspect:isclass"], "of a snapshot it returned False"),
        (["--both", "1" + 400 * "0"], "less than or equal"),
        (["--both", "1", "--devices", "1" + 400 * "0"], "less than or equal"),
    ],
)
def test_a_wrong_option_is_told_in_a_line_with_status_2(
    config: Path, options: list[str], reason: str
) -> None:
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in " ".join(done.output.replace("│", " ").split())


def test_an_empty_file_is_one_without_sections(config: Path) -> None:
    config.write_text("# nothing yet\n")
    options = ["--strategy", "colocated", "--steps", "3", "--both", "1", "--devices", "2"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert done.exit_code == 0
    assert "colocated" in done.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("device_model: {rates: {launch_s: -1}}", "launch_s (got -1) must be at least 0"),
        ("simulation: {workload: {spread: 50}}", "simulation.workload.spread: "),
        ("simulation: {workload: {spread: 50}}", "(got 50"),
    ],
)
def test_a_number_out_of_its_range_is_told(config: Path, text: str, reason: str) -> None:
    config.write_text(text)

    done = CliRunner().invoke(app, ["simulate", "--config", str(config)])

    assert reason in str(done.exception)


def test_an_unknown_rate_is_refused(config: Path) -> None:
    config.write_text("device_model: {rates: {speed: 1}}")

    done = CliRunner().invoke(app, ["simulate", "--config", str(config)])

    assert "no rate is named speed" in str(done.exception)


WRONG = """
scheduler: {policy: multiplex}
simulation: {workers: [{tags: [rollout, train], hardware: B300}], strategies: [adaptive, adaptiv]}
device_model: {rates: {row_ms: 1}}
"""


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_all_wrong_settings_are_named_at_once(config: Path, command: str) -> None:
    config.write_text(WRONG)

    done = CliRunner().invoke(app, [command, "--config", str(config)])

    said = str(done.exception)
    for line in (
        "scheduler.policy: no strategy 'multiplex'",
        "simulation.strategies[1]: no strategy 'adaptiv'",
        "did you mean multiplexed?",
        "simulation.workers[0].hardware: no device 'B300' is known; known are H20, H100",
        "device_model.rates: no rate is named row_ms; known are",
        "did you mean row_s?",
    ):
        assert line in said, said


@pytest.mark.parametrize("options", [["--from", "run", "--kafka"], ["--measured", "file"]])
def test_one_recorded_run_at_most_is_measured(config: Path, options: list[str]) -> None:
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])

    assert done.exit_code == 2
    assert "--from" in done.output


def test_a_simulation_of_too_few_steps_says_how_many_are_needed(config: Path) -> None:
    config.write_text(FILE.replace("steps: 5", "steps: 2"))
    options = ["--strategy", "colocated"]
    done = CliRunner().invoke(app, ["simulate", "--config", str(config), *options])
    assert "no figures: 2 of 2 steps" in done.stdout
    assert "the first 2 steps are not counted" in done.stdout
    assert "simulate more (--steps)" in done.stdout
