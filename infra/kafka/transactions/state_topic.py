"""Reading of Kafka's own record of transactions, from its beginning to its end now."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.client import BEGINNING, client, client_options
from seamlessflow.infra.kafka.outage import REFUSALS
from seamlessflow.infra.kafka.transactions.history import TOPIC, StateRecord, state_records
from seamlessflow.infra.settings import KafkaSettings

_ASK_S = 10.0
_SILENCE_S = 30.0
_POLL_S = 0.5
_BATCH = 1000


def read_states(kafka: KafkaSettings, stopping: Stopping) -> list[StateRecord]:
    """Return the states of all transactional ids that the topic still has.

    Raises `KafkaRefused` without the permission to read it, and `KafkaUnavailable`, also once
    `stopping` or if nothing comes for 30 s.
    """
    options = {
        "group.id": f"{kafka.topic_prefix}transactions",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        **client_options(kafka),
    }
    consumer: Consumer = client(Consumer, options)
    try:
        topic = consumer.list_topics(TOPIC, timeout=_ASK_S).topics[TOPIC]
        left = set(topic.partitions)
        consumer.assign([Position(TOPIC, number, BEGINNING) for number in left])
        records: list[tuple[bytes | None, bytes | None]] = []
        heard_s = time.monotonic()
        while left:
            for message in consumer.consume(_BATCH, _POLL_S):
                heard_s = time.monotonic()
                error = message.error()
                if error is None:
                    records.append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
            if left and (stopping() or time.monotonic() - heard_s > _SILENCE_S):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no end of {TOPIC}"))
        return state_records(records)
    except KafkaException as error:
        reason, servers = error.args[0], kafka.bootstrap_servers
        if reason.code() in REFUSALS:
            raise KafkaRefused(servers, f"reading {TOPIC}: {reason.str()}") from error
        raise KafkaUnavailable(servers, 0, f"reading {TOPIC}: {reason.str()}") from error
    finally:
        consumer.close()
