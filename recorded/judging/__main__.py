"""A reward worker, `python -m seamlessflow.recorded.judging`: judges off the agents' path."""

from seamlessflow.infra.settings import load
from seamlessflow.recorded.judging.settings import RewardWorkerSettings


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    settings = load(RewardWorkerSettings)

    import uvloop

    from seamlessflow.infra import process
    from seamlessflow.recorded.judging.worker import serve

    process.run(lambda stop: serve(settings, stop), uvloop.new_event_loop)


if __name__ == "__main__":
    main()
