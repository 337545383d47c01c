"""Broker in the foreground, until Ctrl-C: `python -m infra.broker --data DIR [--port N]`."""

import argparse
import logging
import signal
import sys
import time
from pathlib import Path

from infra.broker.broker import Broker
from infra.errors import SeamlessFlowError


def main() -> None:
    """Run a broker in the foreground; exit with status 1 if the broker ends first."""
    parser = argparse.ArgumentParser(prog="python -m infra.broker", description="Runs Kafka.")
    parser.add_argument("--data", type=Path, required=True, help="directory that keeps its data")
    parser.add_argument("--port", type=int, default=9092, help="port on loopback (%(default)s)")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Broker(chosen.data, chosen.port) as broker:
            print(f"Kafka answers at {broker.bootstrap_servers}", flush=True)
            while broker.running:
                time.sleep(0.5)
            sys.exit(f"the broker ended by itself\n{broker.tail()}")
    except KeyboardInterrupt:
        print("stopped")
    except SeamlessFlowError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
