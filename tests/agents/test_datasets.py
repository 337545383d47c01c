"""Exports read by Hugging Face `datasets`, and files that it wrote brought in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.export.forms import FORMS, Form
from seamlessflow.recorded.export.tables import Kind, Table
from seamlessflow.schemas.records import Trajectory
from tests.agents.installed import Installed
from tests.builders.trajectories.exports import (
    bring_in,
    brought_in,
    export,
    named_cluster,
    rows,
    table_files,
)
from tests.builders.trajectories.golden_topics import golden_log

pytestmark = pytest.mark.agents
LOG = golden_log()
KINDS: dict[Kind, str | list[str]] = {
    Kind.TEXT: "string",
    Kind.INTEGER: "int64",
    Kind.NUMBER: "float64",
    Kind.IDS: ["int32"],
    Kind.FLOATS: ["float32"],
    Kind.FLAGS: ["bool"],
}
TABULAR = {name: form for name, form in FORMS.items() if isinstance(form, Form)}
"""Forms whose rows are columns, in lines of JSON also."""
TABLES = [pytest.param(f, t, id=f"{f}-{t.name}") for f in TABULAR for t in TABULAR[f].tables]
JSON_DIGITS = 1e-10
"""Last decimal of a number that `to_json` writes."""


@pytest.fixture(scope="module", autouse=True)
def log(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    """Yield a cluster with the topics of a finished run."""
    with named_cluster(broker, LOG) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def exported(log: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with an export for each form and format."""
    directory = tmp_path_factory.mktemp("exported")
    for form in TABULAR:
        for format in ("parquet", "jsonl"):
            answer = export("--to", directory / form / format, "--form", form, "--format", format)
            assert answer.exit_code == 0, answer.output
    return directory


def read(installed: Installed, where: Path, format: str, files: list[Path], **job: Any) -> Any:
    """Return the columns' kinds and the rows that `datasets` reads out of the files."""
    job |= {"format": format, "files": [str(path) for path in files]}
    command = installed.program("read_table.py", json.dumps(job))
    cache = {"HF_HOME": str(where), "HF_HUB_OFFLINE": "1"}
    return json.loads(installed.run(command, where, **cache))


def kinds(table: Table) -> dict[str, str | list[str]]:
    return {name: KINDS[kind] for name, kind in table.columns.items()}


@pytest.mark.parametrize("form, table", TABLES)
def test_parquet_is_read_with_the_types_and_values_of_the_export(
    installed: Installed, exported: Path, tmp_path: Path, form: str, table: Table
) -> None:
    whole = exported / form / "parquet"
    result = read(installed, tmp_path, "parquet", table_files(whole, table.name))
    assert result == {"kinds": kinds(table), "rows": rows(whole, table.name)}
    assert result["rows"]


@pytest.mark.parametrize("form, table", TABLES)
def test_lines_of_json_have_their_values_and_with_features_the_same_types(
    installed: Installed, exported: Path, tmp_path: Path, form: str, table: Table
) -> None:
    whole = exported / form / "jsonl"
    files = table_files(whole, table.name)
    untyped = read(installed, tmp_path, "json", files, apart=True)
    assert untyped["rows"] == rows(whole, table.name)
    typed = read(installed, tmp_path, "json", files, kinds=kinds(table))
    assert typed == {"kinds": kinds(table), "rows": rows(exported / form / "parquet", table.name)}


@pytest.mark.parametrize("form", TABULAR)
def test_files_that_datasets_wrote_are_brought_in_like_those_of_the_export(
    log: KafkaSettings, installed: Installed, exported: Path, tmp_path: Path, form: str
) -> None:
    chain_files = table_files(exported / form / "parquet", TABULAR[form].chains.name)
    parquet, jsonl = tmp_path / "written.parquet", tmp_path / "written.jsonl"
    read(installed, tmp_path, "parquet", chain_files, write=[str(parquet), str(jsonl)])

    def made_of(*files: Path) -> list[Trajectory]:
        prefix = f"{log.topic_prefix}{form}.{files[0].stem}{files[0].suffix}."
        answer = bring_in(*files, "--to", prefix, "--train", "--version", "0")
        assert answer.exit_code == 0, answer.output
        return sorted(brought_in(log, prefix), key=sequence)

    wanted = made_of(*chain_files)
    assert len(wanted) == len(rows(exported / form / "parquet", TABULAR[form].chains.name))
    for made, tolerance in ((made_of(parquet), 0.0), (made_of(jsonl), JSON_DIGITS)):
        assert [sequence(trajectory) for trajectory in made] == [
            sequence(trajectory) for trajectory in wanted
        ]
        np.testing.assert_allclose(logprobs(made), logprobs(wanted), rtol=1e-7, atol=tolerance)


def sequence(trajectory: Trajectory) -> tuple[str, bytes, bytes]:
    return trajectory.metadata["foreign_session_id"], trajectory.tokens, trajectory.loss_mask


def logprobs(trajectories: list[Trajectory]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(b"".join(trajectory.logprobs for trajectory in trajectories), "<f4")
