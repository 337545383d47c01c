import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.schemas.tokens import pack, unpack


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_packing_is_little_endian_int32(ids: list[int]) -> None:
    packed = pack(ids)
    assert packed == b"".join(i.to_bytes(4, "little", signed=True) for i in ids)
    assert unpack(packed) == ids


def test_part_of_a_token_id_is_refused() -> None:
    with pytest.raises(ValueError, match="5 bytes"):
        unpack(b"\0" * 5)
