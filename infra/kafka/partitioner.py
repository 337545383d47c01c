"""Partition of a key by Kafka's own partitioner (`murmur2_random`). Pure."""

_M = 0x5BD1E995
_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF


def partition_of(key: str, partitions: int) -> int:
    """Return the partition to which producers of this project send records with this key."""
    return (_murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Return Austin Appleby's MurmurHash2 with the seed of Kafka's `Utils.murmur2`."""
    value = _SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _WORD
        word = (word ^ word >> 24) * _M & _WORD
        value = value * _M & _WORD ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _WORD
    value = (value ^ value >> 13) * _M & _WORD
    return value ^ value >> 15
