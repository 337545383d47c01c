"""The lock of a run's topics: the first command holds them, and a killed one does so no longer."""

import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.access import RUN_GROUP
from seamlessflow.infra.clock import never
from seamlessflow.infra.kafka.start.members import client_ids
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.locks import TopicsInUse, only_run_on
from seamlessflow.schemas.topics import CONTROL
from tests.waiting import until

HOLDS = """
import sys
from pathlib import Path
from seamlessflow.infra.clock import never
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.locks import only_run_on

settings = KafkaSettings(
    bootstrap_servers=sys.argv[1], topic_prefix=sys.argv[2], session_timeout_s=6
)
with only_run_on(settings, Path(sys.argv[3]), never):
    print("holds", flush=True)
    sys.stdin.read()
"""


def test_a_second_command_is_refused_with_the_first_and_may_begin_once_that_was_killed(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    settings = kafka.model_copy(update={"session_timeout_s": 6.0})
    create_topics(settings, [CONTROL])
    place = [settings.bootstrap_servers, settings.topic_prefix, str(tmp_path / "first")]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, *place], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"holds\n"
        with (
            pytest.raises(TopicsInUse, match=rf"process {first.pid} of .*, out .*first, since 20"),
            only_run_on(settings, tmp_path / "second", never),
        ):
            pass
        first.kill()
    with only_run_on(settings, tmp_path / "second", never):
        (holder,) = client_ids(settings, RUN_GROUP)
        assert "second" in holder
    until(lambda: not client_ids(settings, RUN_GROUP), "the end of the second")
