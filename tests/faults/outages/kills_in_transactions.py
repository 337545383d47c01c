"""Kills of the only broker while transactions are between their offsets and their end.

    python -m tests.faults.outages.kills_in_transactions [--kills 20] [--seed 1] [--unwatched]

Each kill meets ten transactions, of ten managers by name, each with a record and the offset of a
group. The broker starts again, the producers also, as a manager's do. Printed for each kill: the
groups that get no offsets for a minute, the partitions whose committed records end for ever before
an open transaction. The status is 1 if there is any. `--unwatched`: without the watch that ends
them, as on a Kafka of one's own.
"""

import argparse
import logging
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.client import client_options
from seamlessflow.infra.kafka.producer import TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.transactions.hanging import transactional_id
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import ENDED_SESSIONS, REQUESTS, TRAJECTORIES
from tests.waiting import until

WIDTH = 10
SPREAD_S = 0.03
"""Time over which producers ask for their ends; the kill comes in its middle."""
OFFSETS_S = 60.0
ASK_S = 5.0


def main() -> None:
    """Kill, count, and exit with status 1 if anything hangs."""
    parser = argparse.ArgumentParser(description="Kills the broker inside transactions.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unwatched", action="store_true")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    rng = random.Random(chosen.seed)
    groups = partitions = 0
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Path(directory), java=SHORT_LIVED, watches=not chosen.unwatched)
        with broker:
            create_topics(broker.settings, [REQUESTS, TRAJECTORIES, ENDED_SESSIONS])
            for number in range(chosen.kills):
                without, longest_s = kill(broker, number, rng)
                stuck = stuck_partitions(broker.settings)
                groups, partitions = groups + len(without), stuck
                print(
                    f"kill {number}: {len(without)} of {WIDTH} groups without offsets, longest "
                    f"wait {longest_s:.1f} s, {stuck} partitions that stand still",
                    flush=True,
                )
    print(f"{chosen.kills * WIDTH} transactions: {groups} groups, {partitions} partitions")
    sys.exit(bool(groups or partitions))


def kill(broker: Broker, number: int, rng: random.Random) -> tuple[Sequence[str], float]:
    """Kill the broker once; return the groups that get no offsets, and the longest wait."""
    kafka, names = broker.settings, [f"{number}-{n}" for n in range(WIDTH)]
    producers = [TransactionalProducer(kafka, transactional_id(name)) for name in names]
    for place, (name, producer) in enumerate(zip(names, producers, strict=True)):
        begin(kafka, name, producer, place)
    ending = together([partial(commit, writer, rng) for writer in producers if number % 3])
    time.sleep(SPREAD_S / 2)
    broker.force_to_end()
    until(lambda: not broker.running, "the end of the broker")
    again = together([partial(renew, kafka, *pair) for pair in zip(names, producers, strict=True)])
    broker.start()
    for thread in (*ending, *again):
        thread.join()
    began_s, without, longest_s = time.monotonic(), [], 0.0
    for place, name in enumerate(names):
        with closing(Reader(kafka, "asking", group=name)) as reader:
            try:
                reader.committed([(REQUESTS.name, place)], OFFSETS_S)
                longest_s = max(longest_s, time.monotonic() - began_s)
            except KafkaUnavailable:
                without.append(name)
    return without, longest_s


def begin(kafka: KafkaSettings, name: str, producer: TransactionalProducer, place: int) -> None:
    """Begin a transaction with a record and an offset of the group `name`."""
    plain = producer._producer
    with closing(Consumer({**client_options(kafka), "group.id": name})) as member:
        plain.begin_transaction()
        plain.produce(TRAJECTORIES.name, b"a trajectory", partition=place)
        offsets = [TopicPartition(REQUESTS.name, place, 5, "progress")]
        plain.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)
        plain.flush(30)


def commit(producer: TransactionalProducer, rng: random.Random) -> None:
    """Ask for the end of the transaction at some moment."""
    time.sleep(rng.random() * SPREAD_S)
    with suppress(KafkaException):
        producer._producer.commit_transaction(5)


def renew(kafka: KafkaSettings, name: str, producer: TransactionalProducer) -> None:
    """Let another producer of the same id take its place, as after a failed transaction."""
    producer.abandon()
    TransactionalProducer(kafka, transactional_id(name)).abandon()


def stuck_partitions(kafka: KafkaSettings) -> int:
    """Count the partitions of trajectories whose committed records end before the last one."""
    places = [(TRAJECTORIES.name, place) for place in range(WIDTH)]
    counted = []
    for isolation in ("read_uncommitted", "read_committed"):
        with closing(BoundsLookup(kafka, isolation)) as lookup:
            until(lambda: bool(lookup.ends(places, ASK_S)), "the ends")
            counted.append(lookup.ends(places, ASK_S))
    return sum(counted[1][place] < counted[0][place] for place in places)


def together(calls: Sequence[Callable[[], None]]) -> Sequence[threading.Thread]:
    """Start each call in a thread."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


if __name__ == "__main__":
    main()
