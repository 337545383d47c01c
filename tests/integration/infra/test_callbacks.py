"""Questions of a reader to Kafka while a group gives it partitions."""

import subprocess
import sys

from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import WorkerLost
from seamlessflow.schemas.topics import Topic

TOPIC = Topic("assigned", 1, 60_000, (WorkerLost,))
LIMIT_S = 120
POLL_S = 10.0
"""Longer than the time between two statistics of a client."""
READING = """
import sys
from seamlessflow.infra.errors import TopicMissing
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings

asked = []

def assigned(partitions):
    try:
        reader.ends([("missing", 0)])
    except TopicMissing as error:
        asked.append(error)

servers, prefix, poll_s = sys.argv[1:]
settings = KafkaSettings(bootstrap_servers=servers, topic_prefix=prefix)
reader = Reader(settings, "member", group="group")
reader.subscribe(["assigned"], assigned)
while not asked:
    reader.poll(float(poll_s))
reader.close()
print(*asked)
"""


def test_a_callback_of_the_group_may_ask_whether_a_topic_exists(kafka: KafkaSettings) -> None:
    """Statistics that arrive in the same poll must not end the process."""
    create_topics(kafka, [TOPIC])
    values = [kafka.bootstrap_servers, kafka.topic_prefix, str(POLL_S)]
    script = [sys.executable, "-c", READING, *values]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "missing" in ended.stdout
