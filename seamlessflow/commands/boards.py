"""The command `seamlessflow boards`: boards for Grafana and alerts for Prometheus, as files."""

from pathlib import Path
from typing import Annotated

import typer

_ALERTS = "alerts.yaml"


def boards(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the files; it is made if it does not exist.")
    ],
) -> None:
    """Write Grafana boards as JSON, one for each part of a run, and alerts.yaml for Prometheus.

    Grafana imports a board and asks for the Prometheus that scrapes /metrics. Prometheus reads the
    alerts as one of its rule_files; each alert names the page that says what to do. See
    runbooks/metrics.md.
    """
    import orjson
    import yaml

    from seamlessflow.infra.errors import SettingsRejected
    from seamlessflow.infra.monitoring.alerts import rule_group
    from seamlessflow.infra.monitoring.grafana import dashboard
    from seamlessflow.infra.monitoring.panels import BOARDS

    pages = {
        f"{board.uid}.json": orjson.dumps(dashboard(board), option=orjson.OPT_INDENT_2)
        for board in BOARDS
    }
    rules = yaml.safe_dump(rule_group(), sort_keys=False, width=1000)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in {**pages, _ALERTS: rules.encode()}.items():
            (directory / name).write_bytes(content)
            typer.echo(directory / name)
    except OSError as error:
        raise SettingsRejected("DIRECTORY", f"{directory}: {error.strerror}") from error
