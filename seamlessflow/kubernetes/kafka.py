"""Custom resources of Strimzi for a Kafka of the run. Pure.

Its operator makes the brokers, and the Service that `kafka.bootstrap_servers` has to name.
"""

from seamlessflow.kubernetes.objects import Manifest

_BROKERS = 3
_DISK_GIB = 500
_PORT = 9092
_VERSION = "kafka.strimzi.io/v1"


def bootstrap_address(name: str) -> str:
    """Return the address at which Strimzi's Service of a cluster answers."""
    return f"{name}-kafka-bootstrap:{_PORT}"


def cluster(name: str) -> list[Manifest]:
    """Return three brokers that are controllers too, each record on two of them at least.

    The topics are made by the run itself, so there is no operator of topics.
    """
    volume = {
        "id": 0,
        "type": "persistent-claim",
        "size": f"{_DISK_GIB}Gi",
        "kraftMetadata": "shared",
        "deleteClaim": False,
    }
    pool = {
        "replicas": _BROKERS,
        "roles": ["controller", "broker"],
        "storage": {"type": "jbod", "volumes": [volume]},
    }
    kafka = {
        "listeners": [{"name": "plain", "port": _PORT, "type": "internal", "tls": False}],
        "config": {
            "auto.create.topics.enable": False,
            "default.replication.factor": _BROKERS,
            "min.insync.replicas": _BROKERS - 1,
            "offsets.topic.replication.factor": _BROKERS,
            "transaction.state.log.replication.factor": _BROKERS,
            "transaction.state.log.min.isr": _BROKERS - 1,
        },
    }
    return [
        {
            "apiVersion": _VERSION,
            "kind": "KafkaNodePool",
            "metadata": {"name": f"{name}-brokers", "labels": {"strimzi.io/cluster": name}},
            "spec": pool,
        },
        {
            "apiVersion": _VERSION,
            "kind": "Kafka",
            "metadata": {"name": name},
            "spec": {"kafka": kafka},
        },
    ]
