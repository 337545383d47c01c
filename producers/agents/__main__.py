"""`python -m producers.agents`: runs agents on the tasks of the `tasks` topic."""

from infra.settings import load
from producers.agents.settings import AgentsSettings


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    settings = load(AgentsSettings)

    import uvloop

    from infra import process
    from producers.agents.runner import serve

    process.run(lambda stop: serve(settings, stop), uvloop.new_event_loop)


if __name__ == "__main__":
    main()
