"""Brokers in the foreground, until Ctrl-C.

    python -m seamlessflow.infra.broker --data DIR [--port N]

With `--brokers 3` it runs a cluster with three, to try what happens when one of them ends.
"""

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.cluster import BrokerCluster
from seamlessflow.infra.errors import SeamlessFlowError

SIZES = (1, 3)


def main() -> None:
    """Run brokers in the foreground; exit with status 1 once most of them have ended."""
    parser = argparse.ArgumentParser(
        prog="python -m seamlessflow.infra.broker", description="Runs Kafka."
    )
    parser.add_argument("--data", type=Path, required=True, help="directory that keeps its data")
    parser.add_argument("--port", type=int, default=9092, help="port on loopback (%(default)s)")
    parser.add_argument(
        "--brokers", type=int, choices=SIZES, default=1, help="3: a cluster (%(default)s)"
    )
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if chosen.brokers == 1:
            with Broker(chosen.data, chosen.port) as broker:
                _watch(broker.bootstrap_servers, [broker])
        else:
            with BrokerCluster(chosen.data, chosen.brokers, chosen.port) as cluster:
                _watch(cluster.settings.bootstrap_servers, cluster.brokers)
    except KeyboardInterrupt:
        print("stopped")
    except SeamlessFlowError as error:
        sys.exit(str(error))


def _watch(servers: str, brokers: Sequence[Broker]) -> None:
    """Wait until most of the brokers have ended, and exit."""
    print(f"Kafka answers at {servers}", flush=True)
    running = len(brokers)
    while running > len(brokers) // 2:
        time.sleep(0.5)
        still = [broker for broker in brokers if broker.running]
        if len(still) < running:
            running = len(still)
            print(f"{running} of {len(brokers)} brokers run", flush=True)
    ended = [broker.tail() for broker in brokers if not broker.running]
    sys.exit("\n".join(["the broker ended by itself", *ended]))


if __name__ == "__main__":
    main()
