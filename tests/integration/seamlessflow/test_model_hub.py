"""Models by the names of a hub, through the hub's own library and a hub on loopback.

The library reads its variables once, so each reading of a configuration is a process of its own.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.builders.model_hub import COMMIT, LATER, Hub, model_hub, snapshot_directory
from tests.builders.run_files import model_directory
from tests.paths import ROOT

READ = """
import sys
from pathlib import Path
from seamlessflow.config_file import ConfigRejected, load
try:
    config = load(Path("run.yaml"))
except ConfigRejected as refused:
    print(*refused.faults, sep="\\n")
else:
    print(config.policy.model, config.trainer.teacher, "huggingface_hub" in sys.modules, sep="\\n")
loaded = {"torch", "transformers"} & set(sys.modules)
assert not loaded, loaded
"""
AGAIN = """
import sys
from pathlib import Path
from seamlessflow.recorded.retrain.again import initial_model
print(initial_model(Path(sys.argv[1]), None))
"""
NAME = "org/tiny"
ANSWER_S = 15
"""Limit of the product for a hub's first answer."""


@dataclass(frozen=True)
class Reader:
    """A user with a cache, who reads configurations in a directory."""

    directory: Path
    hub: Hub

    @property
    def snapshot(self) -> Path:
        return snapshot_directory(self.directory / "cache" / "hub", NAME)

    def environment(self, **variables: str) -> dict[str, str]:
        cache = {"HF_HOME": str(self.directory / "cache"), "HF_ENDPOINT": self.hub.url}
        return {**os.environ, "PYTHONPATH": str(ROOT), **cache, **variables}

    def lines(self, model: str = NAME, **variables: str) -> list[str]:
        """Return model, teacher and whether the hub's library was imported, or the faults."""
        return self.lines_of({"policy": {"model": model}}, **variables)

    def lines_of(self, sections: dict[str, object], **variables: str) -> list[str]:
        (self.directory / "run.yaml").write_text(yaml.safe_dump(sections))
        done = self.run([sys.executable, "-c", READ], **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def run(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Yield a reader and a hub that has the model `org/tiny`."""
    (tmp_path / "made").mkdir()
    with model_hub() as hub:
        hub.serve(NAME, model_directory(tmp_path / "made"))
        yield Reader(tmp_path, hub)


def test_a_model_is_fetched_once_and_then_needs_no_network(reader: Reader) -> None:
    assert reader.lines() == [str(reader.snapshot), "None", "True"]
    assert {path.name for path in reader.snapshot.iterdir()} == set(
        reader.hub.repositories[NAME].commits[COMMIT]
    )
    asked = len(reader.hub.requests)
    assert reader.lines() == [str(reader.snapshot), "None", "True"]
    assert len(reader.hub.requests) == asked
    assert reader.lines(HF_HUB_OFFLINE="1") == [str(reader.snapshot), "None", "True"]


def test_neither_code_nor_pickles_nor_folders_are_fetched(reader: Reader) -> None:
    files = reader.hub.repositories[NAME].commits[COMMIT]
    others = ("modeling.py", "pytorch_model.bin", "onnx/config.json", "consolidated.safetensors")
    reader.hub.repositories[NAME].commits[COMMIT] = {**files, **dict.fromkeys(others, b"{}")}
    reader.lines()
    assert {path.name for path in reader.snapshot.iterdir()} == set(files)


def test_each_model_that_settings_name_is_fetched(reader: Reader) -> None:
    reader.hub.serve("org/large", reader.directory / "made")
    lines = reader.lines_of(
        {"policy": {"model": NAME}, "trainer": {"teacher": f"org/large@{COMMIT}"}}
    )
    large = snapshot_directory(reader.directory / "cache" / "hub", "org/large")
    assert lines == [str(reader.snapshot), str(large), "True"]


def test_a_branch_stays_the_commit_of_the_cache_until_another_is_named(reader: Reader) -> None:
    repository = reader.hub.repositories[NAME]
    reader.lines()
    repository.commits[LATER] = repository.commits[COMMIT]
    repository.branches |= {"main": LATER, "v2": LATER}
    assert reader.lines() == [str(reader.snapshot), "None", "True"]
    later = snapshot_directory(reader.directory / "cache" / "hub", NAME, LATER)
    assert reader.lines(f"{NAME}@v2") == [str(later), "None", "True"]
    assert reader.lines(f"{NAME}@{COMMIT}") == [str(reader.snapshot), "None", "True"]


def test_a_directory_wins_over_a_model_of_the_same_spelling(reader: Reader) -> None:
    (reader.directory / "org" / "tiny").mkdir(parents=True)
    assert reader.lines() == ["org/tiny", "None", "False"], "its library takes a while"
    assert reader.hub.requests == []


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("org/tyni", "the hub {hub} shows no model org/tyni to this user: check the name, and HF"),
        ("org/tiny@v9", "org/tiny at the hub {hub} has no revision v9: write a branch, a tag or a"),
        ("org/gated", "the hub {hub} gives org/gated only to users who accepted its terms: accept"),
        ("org/private", "the hub {hub} shows no model org/private to this user: check the name"),
        ("org/old", "org/old@main at the hub {hub} has no config.json with safetensors files, but"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_wrong_setting(
    reader: Reader, model: str, line: str
) -> None:
    made = reader.directory / "made"
    reader.hub.serve("org/gated", made).gated = True
    reader.hub.serve("org/private", made).token = "hf_right"
    reader.hub.serve("org/old", made).commits[COMMIT] = {
        "pytorch_model.bin": b"",
        "config.json": b"",
    }
    (fault,) = reader.lines(model)
    name = model.partition("@")[0]
    said = line.format(hub=reader.hub.url)
    assert fault.startswith(f"policy.model: there is no directory {name}, and {said}")
    assert fault.endswith(f" (looked for in {reader.directory})")


def test_a_private_model_is_fetched_with_the_token_which_nothing_shows(reader: Reader) -> None:
    reader.hub.repositories[NAME].token = "hf_right"
    (fault,) = reader.lines(HF_TOKEN="hf_wrong")
    assert "check the name, and HF_TOKEN" in fault and "hf_wrong" not in fault
    assert reader.lines(HF_TOKEN="hf_right") == [str(reader.snapshot), "None", "True"]


def test_a_hub_that_is_not_there_is_named_with_the_way_without_it(reader: Reader) -> None:
    (fault,) = reader.lines(HF_ENDPOINT="http://user:secret@127.0.0.1:9")
    assert "the hub http://127.0.0.1:9 cannot be reached" in fault and "secret" not in fault
    assert "(hf download org/tiny --local-dir DIRECTORY) and name that directory" in fault


def test_an_empty_cache_is_named_while_the_network_is_forbidden(reader: Reader) -> None:
    (fault,) = reader.lines(HF_HUB_OFFLINE="1")
    assert "has not all files of org/tiny@main, while HF_HUB_OFFLINE is set: start once" in fault
    assert reader.hub.requests == []


def test_a_hub_that_never_answers_is_waited_for_up_to_a_limit(reader: Reader) -> None:
    reader.hub.silent = True
    (fault,) = reader.lines()
    assert f"the hub {reader.hub.url} gave no answer within {ANSWER_S} s" in fault


def test_a_download_that_breaks_off_goes_on_by_itself(reader: Reader) -> None:
    (reader.directory / "made" / "model.safetensors").write_bytes(weights := bytes(12 * 2**20))
    reader.hub.serve(NAME, reader.directory / "made")
    reader.hub.cut = {"model.safetensors": 11 * 2**20}
    assert reader.lines() == [str(reader.snapshot), "None", "True"]
    kept = f"model.safetensors bytes={10 * 2**20}-"
    assert [request for request in reader.hub.requests if request.endswith(kept)]
    assert (reader.snapshot / "model.safetensors").read_bytes() == weights


def test_what_was_fetched_before_a_hub_was_lost_is_not_fetched_again(reader: Reader) -> None:
    reader.hub.cut = {"model.safetensors": 4}
    reader.hub.always_cut = True
    (fault,) = reader.lines()
    assert "or broke off" in fault and "start again, which keeps the files that are whole" in fault
    assert not list(reader.directory.rglob("*.incomplete"))

    (offline,) = reader.lines(HF_HUB_OFFLINE="1")
    assert "has not all files of org/tiny@main" in offline

    reader.hub.always_cut = False
    reader.hub.cut.clear()
    reader.hub.requests.clear()
    assert reader.lines() == [str(reader.snapshot), "None", "True"]
    fetched = [path for path in reader.hub.requests if path.startswith("GET /org")]
    assert len(fetched) == 1 and fetched[0].endswith("model.safetensors")


def test_a_disk_without_room_is_named_before_a_download(reader: Reader) -> None:
    repository = reader.hub.repositories[NAME]
    repository.sizes = {"model.safetensors": 10**18}
    (fault,) = reader.lines()
    assert "org/tiny@main takes 1,000,000,000,000.0 MB more, and " in fault
    assert "make room, or move the cache with HF_HOME" in fault
    assert not [path for path in reader.hub.requests if path.startswith("GET /org")]


def test_a_cache_that_cannot_be_written_is_named(reader: Reader) -> None:
    (reader.directory / "cache").touch()
    (fault,) = reader.lines()
    assert f"nothing can be written to the cache {reader.directory}/cache/hub" in fault
    assert fault.endswith(f": move it with HF_HOME (looked for in {reader.directory})")


def test_with_another_wrong_setting_both_are_named_and_nothing_is_fetched(reader: Reader) -> None:
    lines = reader.lines_of({"policy": {"model": "org/tyni"}, "run": {"steps": "many"}})
    assert [line.partition(":")[0] for line in lines] == ["run.steps", "policy.model"]
    (line,) = reader.lines_of({"policy": {"model": NAME}, "run": {"steps": "many"}})
    assert line.startswith("run.steps")
    assert not [path for path in reader.hub.requests if "/resolve/" in path]


def test_a_training_with_a_wrong_name_ends_as_one_with_a_wrong_setting(reader: Reader) -> None:
    (reader.directory / "run.yaml").write_text("policy: {model: org/tyni}\n")
    command = [sys.executable, "-m", "seamlessflow", "train", "--config", "run.yaml"]
    done = reader.run(command)
    assert done.returncode == 78
    assert "policy.model: there is no directory org/tyni, and the hub" in done.stderr
    assert "policy.renderer" not in done.stderr


def test_the_doctor_reads_a_model_without_its_weights(reader: Reader) -> None:
    done = reader.run([sys.executable, "-m", "seamlessflow", "doctor", "--model", NAME])
    assert "model org/tiny" in done.stdout and "prompts are those of the model's" in done.stdout
    assert not (reader.snapshot / "model.safetensors").exists()


def test_a_run_that_is_trained_again_gets_the_commit_that_it_began_with(reader: Reader) -> None:
    repository = reader.hub.repositories[NAME]
    repository.commits[LATER] = repository.commits[COMMIT]
    repository.branches["main"] = LATER
    elsewhere = snapshot_directory(Path("/no/longer/there"), NAME)
    done = reader.run([sys.executable, "-c", AGAIN, str(elsewhere)])
    assert done.stdout.splitlines() == [str(reader.snapshot)], done.stderr
