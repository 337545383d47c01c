"""The command `python -m scheduler.simulation`."""

import pytest

from scheduler.simulation.__main__ import main


@pytest.fixture(autouse=True)
def short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_RUN__STEPS", "6")
    monkeypatch.setenv("SEAMLESSFLOW_RUN__GROUPS_PER_STEP", "4")
    monkeypatch.setenv("SEAMLESSFLOW_RUN__GROUP_SIZE", "4")


def refusal(*arguments: str) -> str:
    """Return the line with which the command ends."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return str(ended.value)


def test_each_strategy_is_one_line_with_step_time_and_idle_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--train-ms", "800"])

    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["strategy", "s", "a", "step", "idle", "staleness"]
    table = {line.split()[0]: line.split()[1:] for line in lines}
    assert list(table) == ["colocated", "disaggregated", "multiplexed"]
    assert table["multiplexed"][0] == "0.60"  # (16 x 100 ms + 800 ms) / 4 workers
    assert float(table["disaggregated"][0]) > 0.6
    idle = {name: float(cells[1].rstrip("%")) for name, cells in table.items()}
    assert idle["multiplexed"] < 15 < idle["disaggregated"]


def test_a_strategy_that_cannot_finish_the_run_has_no_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--rollout", "2", "--both", "0", "--strategies", "multiplexed"])

    assert "no figures: 0 of 6 steps" in capsys.readouterr().out


def test_an_input_that_cannot_be_used_is_refused_in_one_line() -> None:
    assert refusal("--sample-ms", "-1") == (
        "argument --sample-ms: '-1' is not a number of at least 0"
    )
    assert refusal("--strategies", "none").startswith("no strategy 'none'")
    assert "\n" not in refusal("--both", "two")
