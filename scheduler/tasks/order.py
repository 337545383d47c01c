"""Order of tasks: a pseudo-random permutation, one element at a time. Pure.

The n-th place of a pass is computed from seed, pass and n alone, without a list of all places: a
scheduler that takes over continues where the last one stopped, in constant time and memory. The
permutation is a Feistel network of four rounds over the next power of four, whose results beyond
the number of tasks are permuted again until they fall below it (cycle walking; Black and Rogaway,
"Ciphers with arbitrary finite domains", 2002).
"""

from hashlib import blake2b

SHUFFLED = ("shuffled", 1)
"""Name and version of the order: another version may draw other tasks for the same figures."""

_ROUNDS = 4


def shuffled_place(number: int, count: int, seed: int, finished_passes: int) -> int:
    """Return the place, below `count`, of the draw `number` of a pass, also below `count`.

    Different draws of a pass have different places: the same in every release of Python.
    """
    half_bits = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    while True:  # fewer than four times on average: `count` is more than a quarter of the domain
        left, right = number >> half_bits, number & mask
        for turn in range(_ROUNDS):
            mixed = _hash(f"{seed}/{finished_passes}/{turn}/{right}")
            left, right = right, left ^ (mixed & mask)
        number = left << half_bits | right
        if number < count:
            return number


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
