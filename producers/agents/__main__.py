"""The agents process, `python -m seamlessflow.producers.agents`: agents on tasks from Kafka."""

from seamlessflow.infra.settings import load
from seamlessflow.producers.agents.settings import AgentsSettings


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    settings = load(AgentsSettings)

    import uvloop

    from seamlessflow.infra import process
    from seamlessflow.producers.agents.runner import serve

    process.run(lambda stop: serve(settings, stop), uvloop.new_event_loop)


if __name__ == "__main__":
    main()
