"""A lookup of consumer groups outlives its coordinator's absence; librdkafka may end the process
when a request that timed out meets the coordinator again.
"""

import subprocess
import sys
from pathlib import Path
from typing import IO

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.schemas.records import WorkerLost
from seamlessflow.schemas.topics import Topic
from tests.waiting import until

ASKS = """
import sys
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.topics.groups import GroupLookup
from seamlessflow.infra.settings import KafkaSettings

lookup = GroupLookup(KafkaSettings(bootstrap_servers=sys.argv[1]))
for line in sys.stdin:
    answers = 0
    for limit_s in (0.5, 0.7, 0.9) if line == "away\\n" else (60,):
        try:
            lookup.find("readers", limit_s)
            lookup.committed("readers", limit_s)
            answers += 1
        except KafkaUnavailable:
            pass
    print(answers, flush=True)
"""


def test_requests_without_an_answer_do_no_harm_when_the_coordinator_is_back(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        create_topics(broker.settings, [Topic("lost", 1, 60_000, (WorkerLost,))])
        command = [sys.executable, "-c", ASKS, broker.bootstrap_servers]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as asking:
            assert asking.stdin is not None
            assert asking.stdout is not None
            assert ask(asking.stdin, asking.stdout, "there") == "1"
            for _ in range(3):
                broker.force_to_end()
                until(lambda: not broker.running, "the end of the broker")
                assert ask(asking.stdin, asking.stdout, "away") == "0"
                broker.start()
                assert ask(asking.stdin, asking.stdout, "there") == "1"
            asking.stdin.close()
            assert asking.wait(30) == 0


def ask(questions: IO[str], answers: IO[str], word: str) -> str:
    """Return how many of its lookups the other process had answered."""
    questions.write(f"{word}\n")
    questions.flush()
    return answers.readline().strip()
