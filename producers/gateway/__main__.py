"""The gateway process: `python -m seamlessflow.producers.gateway`, set by `SEAMLESSFLOW_*`."""

from functools import partial

import uvloop

from seamlessflow.infra.process import run
from seamlessflow.infra.settings import load
from seamlessflow.producers.gateway.server import serve
from seamlessflow.producers.gateway.settings import GatewaySettings


def main() -> None:
    """Run one gateway until SIGTERM or SIGINT."""
    run(partial(serve, load(GatewaySettings)), uvloop.new_event_loop)


if __name__ == "__main__":
    main()
