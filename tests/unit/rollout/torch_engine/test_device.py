"""The device that an engine takes its model to."""

from tests.builders.engines.torch_engine import StartEngine
from tests.builders.models import config, random_model


def test_a_device_may_be_chosen_by_the_engine(start: StartEngine) -> None:
    assert start(random_model(config("qwen2")), device="auto").health().error is None
