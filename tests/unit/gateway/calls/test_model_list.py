import anthropic.types
import openai.types
import orjson

from seamlessflow.producers.gateway.calls.model_list import listing, one_model


def test_each_vendor_s_client_reads_its_own_kind_of_model() -> None:
    read = orjson.loads(listing(["a", "b"], 1_700_000_000))
    for model, name in zip(read["data"], ("a", "b"), strict=True):
        assert openai.types.Model.model_validate(model).id == name
        theirs = anthropic.types.ModelInfo.model_validate(model)
        assert (theirs.id, theirs.created_at.timestamp()) == (name, 1_700_000_000)
    assert (read["has_more"], read["first_id"], read["last_id"]) == (False, "a", "b")


def test_there_may_be_none() -> None:
    assert orjson.loads(listing([], 0))["data"] == []


def test_one_is_told_as_it_is_listed() -> None:
    assert orjson.loads(one_model("a", 7)) == orjson.loads(listing(["a"], 7))["data"][0]
