"""Boards and alerts ask for metrics that exist, by labels that these have, and name real pages."""

import re

import pytest

from seamlessflow.infra.monitoring.alerts import ALERTS, Alert, rule_group
from seamlessflow.infra.monitoring.grafana import dashboard
from seamlessflow.infra.monitoring.panels import BOARDS, Board, Series
from seamlessflow.infra.telemetry.names import METRICS
from seamlessflow.trainer.metrics.names import METRICS as TRAINER_METRICS
from tests.paths import ROOT

CURVES = [curve for board in BOARDS for panel in board.panels for curve in panel.curves]
QUERIES = [*(curve.expression for curve in CURVES), *(alert.query for alert in ALERTS)]
OF_SCRAPES = {"instance", "job", "le"}
"""Labels that Prometheus adds to each metric, and that of a histogram's buckets."""


def metrics(query: str) -> set[str]:
    """Return the names of our metrics in a query, without the parts of histograms."""
    names = re.findall(r"seamlessflow_\w+", query)
    return {re.sub("_(bucket|sum|count)$", "", name) for name in names}


def labels(text: str) -> set[str]:
    """Return the labels that a query or a legend names."""
    grouped = re.findall(r"by \(([^)]*)\)", text)
    matched = re.findall(r"(\w+)(?:=~|!=|=)\"", text)
    shown = re.findall(r"{{ ?(?:\$labels\.)?(\w+) ?}}", text)
    return {part.strip() for group in grouped for part in group.split(",")} | {*matched, *shown}


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_asks_for_metrics_that_processes_have(query: str) -> None:
    unknown = metrics(query) - METRICS.keys()
    assert unknown == set()
    assert metrics(query) or re.search(r"\b(process_\w+|up)\b", query)


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_names_labels_that_its_metrics_have(query: str) -> None:
    has = {label for name in metrics(query) for label in METRICS[name].labels}
    assert labels(query) <= has | OF_SCRAPES


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.legend)
def test_a_legend_names_labels_that_its_query_keeps(curve: Series) -> None:
    kept = labels(curve.expression) if " by (" in curve.expression else OF_SCRAPES
    assert labels(curve.legend) <= kept


def test_figures_of_steps_are_those_of_the_trainer() -> None:
    named = {name for query in QUERIES for name in re.findall(r'\{metric="([^"]+)"', query)}
    assert named <= TRAINER_METRICS.keys()
    assert named


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_lie_beside_each_other_and_none_over_another(board: Board) -> None:
    places = [panel["gridPos"] for panel in dashboard(board)["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_names_a_page_and_a_heading_that_exist(alert: Alert) -> None:
    page, _, anchor = alert.page.partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }
    assert not anchor or anchor in anchors


def test_names_of_alerts_and_boards_are_unique() -> None:
    rules = [rule["alert"] for rule in rule_group()["groups"][0]["rules"]]
    assert len(set(rules)) == len(rules) == len(ALERTS)
    assert len({board.uid for board in BOARDS}) == len(BOARDS)
