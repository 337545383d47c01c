"""Cache of the jars of the embedded broker."""

from pathlib import Path

import pytest

from seamlessflow.infra.broker.jars import class_path
from seamlessflow.infra.errors import JarsUnavailable


def test_a_cache_that_cannot_be_made_is_named_with_the_variable_for_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JarsUnavailable, match=r"file/cache/jars.*SEAMLESSFLOW_CACHE"):
        class_path(tmp_path / "file" / "cache")
