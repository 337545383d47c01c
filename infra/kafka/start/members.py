"""Members that a Kafka consumer group has now."""

from confluent_kafka import KafkaException

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.admin import CoordinatorRequests
from seamlessflow.infra.kafka.outage import REFUSALS
from seamlessflow.infra.settings import KafkaSettings

_TIMEOUT_S = 10.0


def client_ids(settings: KafkaSettings, group: str) -> list[str]:
    """Return the client id of each member; none for a group that does not exist.

    Raises `KafkaUnavailable` and `KafkaRefused`.
    """
    name = settings.topic_prefix + group
    requests = CoordinatorRequests(settings)
    try:
        description = requests.answer(
            lambda admin, s: admin.describe_consumer_groups([name], request_timeout=s), _TIMEOUT_S
        )
        return [str(member.client_id) for member in description.members]
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() == reason.GROUP_ID_NOT_FOUND:
            return []
        servers, why = settings.bootstrap_servers, f"group {name}: {reason.str()}"
        if reason.code() in REFUSALS:
            raise KafkaRefused(servers, why) from error
        raise KafkaUnavailable(servers, _TIMEOUT_S, why) from error
