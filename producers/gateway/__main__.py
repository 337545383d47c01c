"""The gateway process, `python -m producers.gateway`, configured by `SEAMLESSFLOW_*`."""

from functools import partial

import uvloop

from infra.process import run
from infra.settings import load
from producers.gateway.server import serve
from producers.gateway.settings import GatewaySettings


def main() -> None:
    """Run one gateway until SIGTERM or SIGINT."""
    run(partial(serve, load(GatewaySettings)), uvloop.new_event_loop)


if __name__ == "__main__":
    main()
