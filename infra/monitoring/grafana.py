"""Boards in the JSON that Grafana imports (its dashboard schema, version 39). Pure."""

from typing import Any

from seamlessflow.infra.monitoring.panels import Board, Panel

_SCHEMA = 39
_COLUMNS = 24
_WIDTH, _HEIGHT = 12, 8
"""A panel's size; a page is 24 wide."""
_SOURCE = {"type": "prometheus", "uid": "${source}"}
"""The Prometheus that the reader chooses on the page."""


def dashboard(board: Board) -> dict[str, Any]:
    """Return the board as a Grafana dashboard, which asks for its Prometheus by a variable."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["seamlessflow"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source]},
        "panels": [_panel(panel, number) for number, panel in enumerate(board.panels)],
    }


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    left = number * _WIDTH % _COLUMNS
    top = number * _WIDTH // _COLUMNS * _HEIGHT
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": left, "y": top, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": curve.expression,
                "legendFormat": curve.legend,
                "datasource": _SOURCE,
            }
            for place, curve in enumerate(panel.curves)
        ],
    }
