"""Figures of an environment's process beside a plain callable."""

from benchmarks.load.agent_turns import CALLABLE, ENVIRONMENT, AgentTurn, figures_of, table

TURNS = (
    AgentTurn(CALLABLE, 200, {"gateway": 100, "agents": 300, "broker": 50}),
    AgentTurn(ENVIRONMENT, 180, {"gateway": 100, "agents": 40, "environment": 320, "broker": 60}),
    AgentTurn(ENVIRONMENT, 160, {"gateway": 120, "agents": 40, "environment": 360, "broker": 80}),
    AgentTurn(CALLABLE, 220, {"gateway": 100, "agents": 300, "broker": 70}),
)


def test_ours_is_what_both_kinds_can_differ_in_and_the_ratio_is_of_medians() -> None:
    figures = figures_of(TURNS)
    assert (figures["callable_ours_cpu_us"], figures["environment_ours_cpu_us"]) == (400, 490)
    assert figures["ratio"] == 490 / 400 == 1.225
    assert (figures["ratio_least"], figures["ratio_most"]) == (1.15, 1.3)
    assert (figures["environment_broker_cpu_us"], figures["callable_environment_cpu_us"]) == (70, 0)


def test_the_table_has_a_row_for_each_process() -> None:
    rows = [line.split() for line in table(TURNS).splitlines()]
    assert ["environment", "0", "340"] in rows
    assert rows[-1] == ["ours", "400", "490"]
