"""Tasks of a test."""

from collections.abc import Callable
from functools import partial

import pytest

from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import FLEET, TASKS
from tests.builders.own_topics import small
from tests.integration.agents.agents_process import issue_samples


@pytest.fixture
def tasks(kafka: KafkaSettings) -> Callable[[int], None]:
    """Issue so many tasks of one group, in one partition."""
    create_topics(kafka, small(TASKS, FLEET))
    return partial(issue_samples, kafka)
