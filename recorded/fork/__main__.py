"""The agents process for a run with live forks, `python -m seamlessflow.recorded.fork`.

It is `seamlessflow.producers.agents`, but its sessions may also go on from the run's ended ones.
"""

from seamlessflow.infra.settings import load
from seamlessflow.producers.agents.settings import AgentsSettings


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    settings = load(AgentsSettings)

    import uvloop

    from seamlessflow.infra import process
    from seamlessflow.producers.agents.runner import serve
    from seamlessflow.recorded.fork.live import RunBeginnings

    process.run(lambda stop: serve(settings, stop, RunBeginnings), uvloop.new_event_loop)


if __name__ == "__main__":
    main()
