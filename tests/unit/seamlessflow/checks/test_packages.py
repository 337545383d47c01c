"""Packages of optional extras, and of storages."""

import pytest

from infra.faults import Fault
from seamlessflow.checks.packages import ExtraMissing, require, training_faults
from seamlessflow.config_file import parse


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    require("schemas", "schemas")
    with pytest.raises(ExtraMissing, match=r"not installed: pyarro; .*seamlessflow\[parquet\]"):
        require("parquet", "schemas", "pyarro")


@pytest.mark.parametrize(
    ("url", "reason"),
    [("s4://bucket/run", "Protocol not known: s4"), ("s3://bucket/run", "Install s3fs")],
)
def test_a_storage_that_cannot_be_used_is_named_before_the_start(url: str, reason: str) -> None:
    [fault] = of_weights(url)
    assert fault.path == ("weights", "url")
    assert reason in fault.text


@pytest.mark.parametrize("url", ["file:///mnt/weights", "/mnt/weights", "memory://weights"])
def test_a_storage_that_is_there_is_not_asked_before_the_start(url: str) -> None:
    assert of_weights(url) == []


def of_weights(url: str) -> list[Fault]:
    found = training_faults(parse({"weights": {"url": url}}))
    return [fault for fault in found if fault.path[:1] == ("weights",)]
