"""Entry of the agents process: `python -m producers.agents` runs agents on tasks from Kafka."""

from infra.settings import load
from producers.agents.settings import AgentsSettings


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    settings = load(AgentsSettings)

    import uvloop

    from infra import process
    from producers.agents.runner import serve

    process.run(lambda stop: serve(settings, stop), uvloop.new_event_loop)


if __name__ == "__main__":
    main()
