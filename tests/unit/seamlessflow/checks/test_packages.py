"""Packages of optional extras."""

import pytest

from seamlessflow.checks.packages import ExtraMissing, require


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    require("schemas", "schemas")
    with pytest.raises(ExtraMissing, match=r"not installed: pyarro; .*seamlessflow\[parquet\]"):
        require("parquet", "schemas", "pyarro")
