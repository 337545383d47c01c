"""The meaning of `auto` in the settings of both processes of a worker."""

import pytest

from seamlessflow.infra.host import device_named


@pytest.mark.parametrize(("has_gpu", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_a_gpu_if_there_is_one(has_gpu: bool, device: str) -> None:
    assert device_named("auto", lambda: has_gpu) == device


def test_a_device_that_is_named_is_not_looked_for() -> None:
    def unexpected() -> bool:
        raise AssertionError

    assert device_named("cuda:1", unexpected) == "cuda:1"
