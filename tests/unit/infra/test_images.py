"""The images and `compose.yaml`: all that they name exists and is what the project uses."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.broker.maven import ENDPOINT
from seamlessflow.infra.settings import KafkaSettings, from_environment
from seamlessflow.producers.rollout.settings import RolloutSettings
from tests.paths import ROOT

IMAGES = sorted((ROOT / "infra/images").glob("*.Dockerfile"))


def lines(image: Path, instruction: str) -> list[list[str]]:
    """Return the words of each instruction of a kind, but those that copy between stages."""
    joined = image.read_text().replace("\\\n", " ")
    instructions = [
        line.split()[1:] for line in joined.splitlines() if line.startswith(instruction)
    ]
    return [words for words in instructions if not words[0].startswith("--from")]


def services() -> dict[str, Any]:
    by_name: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return by_name


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.name)
def test_all_that_an_image_copies_is_there_and_is_sent_to_the_builder(image: Path) -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    copied = [source for words in lines(image, "COPY") for source in words[:-1]]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) for pattern in sent), source


def test_the_base_image_has_all_packages_of_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    copied = {words[0] for words in lines(ROOT / "infra/images/base.Dockerfile", "COPY")}
    assert copied >= set(wheel["targets"]["wheel"]["packages"])


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.name)
def test_an_image_installs_what_is_locked_and_runs_as_no_root(image: Path) -> None:
    installed = [line for line in image.read_text().splitlines() if re.search(r"pip install", line)]
    assert installed
    assert all("--require-hashes" in line or "--no-deps" in line for line in installed)
    assert lines(image, "USER")[-1] == ["1000:1000"]


def test_variables_of_an_image_are_settings() -> None:
    variables = dict(
        word.split("=") for word in lines(ROOT / "infra/images/gpu.Dockerfile", "ENV")[0]
    )
    settings, wrong = from_environment(RolloutSettings, variables)
    assert not wrong
    assert settings["rollout"]["vllm"]["python"] == "/opt/vllm/bin/python"


def test_a_run_of_compose_has_the_kafka_that_is_tested() -> None:
    kafka, run = services()["kafka"], services()["run"]
    version = re.search(r":kafka_[\d.]+:([\d.]+)\+", ENDPOINT)
    assert version and kafka["image"] == f"apache/kafka:{version[1]}"
    address = run["environment"]["SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS"]
    assert kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{address}"
    assert KafkaSettings(bootstrap_servers=address)


def test_compose_builds_the_images_that_exist() -> None:
    built = [
        service["build"]["dockerfile"] for service in services().values() if "build" in service
    ]
    assert sorted(built) == [str(image.relative_to(ROOT)) for image in IMAGES]
