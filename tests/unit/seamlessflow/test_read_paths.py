"""Paths of what a run reads: beside the file first, then in the working directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from seamlessflow.checks.check import before_training
from seamlessflow.config import RunConfig
from seamlessflow.config_file import ConfigRejected, load
from seamlessflow.infra.faults import Fault
from seamlessflow.read_paths import READ, unreachable
from tests.builders.run_files import run_values

WRITTEN = (
    *("out", "weights_dir", "trained_dir", "checkpoints_dir", "cache_dir"),
    *("metrics_csv", "tensorboard_dir"),
)


def paths(annotation: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the settings below a type that are paths."""
    if annotation is Path:
        yield place
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from paths(field.annotation, (*place, name))
    else:
        mapping = "Mapping" in str(get_origin(annotation)) or get_origin(annotation) is dict
        for inner in get_args(annotation):
            yield from paths(inner, (*place, "*") if mapping else place)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file elsewhere than in the working directory."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return Path("../there/run.yaml")


def written(file: Path, **sections: object) -> Path:
    file.write_text(yaml.safe_dump({"agents": {"command": ["true"]}, **sections}))
    return file


def test_every_path_of_the_configuration_is_read_or_written() -> None:
    read = {path for path in paths(RunConfig) if path[-1] not in WRITTEN}
    assert read == set(READ)


def test_what_is_read_is_looked_for_beside_the_file_first(file: Path) -> None:
    for name in ("both", "beside"):
        (file.parent / name).touch()
    for name in ("both", "working"):
        Path(name).touch()
    several = {name: {"tasks": name} for name in ("both", "beside", "working")}
    loaded = load(
        written(
            file,
            out="out",
            policy={"model": "beside"},
            pacing={"sources": several},
            evaluation={"sets": several},
            trainer={"reference": str(Path("both").absolute()), "metrics_csv": "beside"},
        )
    )
    assert loaded.policy.model == Path("../there/beside")
    for sets in (loaded.pacing.sources, loaded.evaluation.sets):
        assert {name: str(section.tasks) for name, section in sets.items()} == {
            "both": "../there/both",
            "beside": "../there/beside",
            "working": "working",
        }
    assert loaded.trainer.reference == Path("both").absolute()
    assert (loaded.out, loaded.trainer.metrics_csv) == (Path("out"), Path("beside"))


def test_what_is_nowhere_is_refused_with_the_places(file: Path) -> None:
    def check(config: RunConfig) -> Iterator[Fault]:
        yield Fault(("policy", "model"), f"there is no directory {config.policy.model}")
        yield Fault(("pacing", "tasks"), "another fault")

    Path("tasks.jsonl").touch()
    with pytest.raises(ConfigRejected) as refusal:
        load(written(file, policy={"model": "nope"}, pacing={"tasks": "tasks.jsonl"}), check)
    directory = file.parent.absolute()
    assert refusal.value.faults == (
        f"policy.model: there is no directory nope (looked for in {directory} and in {Path.cwd()})",
        "pacing.tasks: another fault",
    )


def test_a_whole_run_may_be_named_from_elsewhere(file: Path) -> None:
    run_values(file.parent)
    written(file, policy={"model": "model"}, pacing={"tasks": "tasks.jsonl"})
    assert load(file, before_training).pacing.tasks == Path("../there/tasks.jsonl")


@pytest.mark.parametrize("path", ["~", "~/tasks.jsonl"])
def test_a_path_from_the_home_directory_is_refused_with_the_reason(path: str, file: Path) -> None:
    with pytest.raises(
        ConfigRejected, match=r"pacing\.tasks: .*~ is not expanded here: write the w"
    ):
        load(written(file, pacing={"tasks": path}), missing_tasks)


@pytest.mark.parametrize("path", ["t\u00e4sks.jsonl", "/tmp/t\u00e4sks.jsonl"])
def test_a_name_that_the_encoding_of_the_locale_lacks_is_refused_with_the_reason(
    path: str,
) -> None:
    program = (
        "from pathlib import Path; from seamlessflow.read_paths import searched\n"
        f"print(ascii(searched({{'pacing': {{'tasks': {path!a}}}}}, Path('.'))))"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **locale},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "the encoding of this locale, ascii, lacks letters of it: set LC_ALL=C" in ran.stdout


def test_half_of_a_character_is_in_no_name() -> None:
    assert unreachable("a\ud800b") == "it has half of a character, which no file has in its name"
    assert unreachable("t\u00e4sks.jsonl") == unreachable("a\udce4b") == ""


def missing_tasks(_: RunConfig) -> Iterator[Fault]:
    yield Fault(("pacing", "tasks"), "No such file or directory")
