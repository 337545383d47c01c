"""Settings for sinks: where step and evaluation metrics go, besides `control`."""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from seamlessflow.infra.settings import Section

_DATABASES = ("sqlite:", "postgresql", "mysql", "mssql")
"""Beginnings of MLflow store URIs for which mlflow-skinny lacks the libraries."""


def mlflow_package(uri: str) -> str:
    """Return the package that an MLflow tracking URI needs."""
    return "mlflow" if uri.startswith(_DATABASES) else "mlflow-skinny"


def board_writer() -> str:
    """Return the installed module that writes TensorBoard files; empty if there is none."""
    modules = {"tensorboardX": "tensorboardX", "tensorboard": "torch.utils.tensorboard"}
    return next((module for package, module in modules.items() if find_spec(package)), "")


class SinkSettings(Section):
    """The trainer settings that choose the sinks."""

    metrics_csv: Path | None = Field(
        None,
        description="CSV file with the metrics, a row for each step and evaluation; none: "
        "DATA_DIR/metrics.csv",
    )
    tensorboard_dir: Path | None = Field(
        None, description="Directory for TensorBoard events; none: no events"
    )
    wandb_project: str | None = Field(None, description="Weights & Biases project; none: not sent")
    mlflow_uri: str | None = Field(
        None,
        description="MLflow tracking URI: a server's, or sqlite:///FILE, which needs the package "
        "mlflow instead of mlflow-skinny; none: not sent",
    )
    mlflow_experiment: str = Field(
        "seamlessflow",
        min_length=1,
        description="MLflow experiment; it is made if it does not exist",
    )

    run_name: str | None = Field(
        None,
        min_length=1,
        description="The run's name at Weights & Biases and MLflow; none: its directory's name, "
        "with the policy if there are several",
    )
    samples_every: int = Field(
        10,
        ge=0,
        description="Steps between two tables with sample texts, in samples.jsonl beside the "
        "metrics and in all sinks that show texts; 0: none",
    )
    samples: int = Field(
        8, ge=1, description="Most rows in such a table: each group's best and worst session"
    )

    @field_validator("mlflow_uri")
    @classmethod
    def _addressed(cls, uri: str | None) -> str | None:
        if uri is None:
            return uri
        parts = urlsplit(uri)
        # Settings, and MLflow's own messages, are logged with the whole URI.
        if parts.password is not None:
            raise ValueError(
                "no password may be in it: set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in the environment"
            )
        # A wrong port would look like a server that is away: rows would wait for it to the end.
        try:
            lacks_port = parts.port == 0
        except ValueError:
            lacks_port = True
        if lacks_port:
            raise ValueError("its port is no number from 1 to 65535")
        if not uri or (parts.scheme in ("http", "https") and not parts.hostname):
            raise ValueError("it names no server, such as http://127.0.0.1:5000")
        return uri
