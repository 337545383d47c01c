"""The command `seamlessflow timeline`, as far as it needs no Kafka."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.commands.scheduling.timeline import write_timeline
from tests.builders.records import control


@pytest.mark.parametrize(
    ("path", "reason"), [("run.pdf", "must end in .html"), ("none/run.html", "there is no folder")]
)
def test_a_file_that_cannot_be_written_is_refused_before_kafka_is_read(
    path: str, reason: str
) -> None:
    done = CliRunner().invoke(app, ["timeline", "--to", path])

    assert done.exit_code == 2
    assert reason in " ".join(done.output.replace("│", " ").split())


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["timeline", "--out", str(tmp_path)])

    assert f"{tmp_path} holds no run" in str(done.exception)


def test_each_file_gets_the_form_that_its_name_ends_in(tmp_path: Path) -> None:
    records = [control.joined("w", at_ms=0), control.completed(at_ms=9)]
    paths = [tmp_path / name for name in ("run.html", "run.svg", "run.png", "run.json")]

    write_timeline(records, paths, "a run")

    assert [path.read_bytes()[:9] for path in paths] == [
        b"<!doctype",
        b"<?xml ver",
        b"\x89PNG\r\n\x1a\n\x00",
        b'{"traceEv',
    ]
    assert sorted(tmp_path.iterdir()) == sorted(paths), "no draft is left"
