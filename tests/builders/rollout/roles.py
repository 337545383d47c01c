"""Weights that a rollout process can be told to serve."""

from seamlessflow.schemas.records import PolicyWeights
from tests.builders.records import fleet


def policy(version: int = 0) -> PolicyWeights:
    return fleet.weights(
        version=version, step=version, directory=f"v{version}", manifest_sha256="sha"
    )
