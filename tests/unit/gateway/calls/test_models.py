import anthropic.types
import openai.types
import orjson

from seamlessflow.producers.gateway.calls.models import Models


def test_each_vendor_s_client_reads_its_own_kind_of_model() -> None:
    read = orjson.loads(Models(["a", "b"], 1_700_000_000).listing())
    for model, name in zip(read["data"], ("a", "b"), strict=True):
        assert openai.types.Model.model_validate(model).id == name
        theirs = anthropic.types.ModelInfo.model_validate(model)
        assert (theirs.id, theirs.created_at.timestamp()) == (name, 1_700_000_000)
    assert (read["has_more"], read["first_id"], read["last_id"]) == (False, "a", "b")


def test_there_may_be_none() -> None:
    assert orjson.loads(Models([], 0).listing())["data"] == []


def test_one_is_told_as_it_is_listed() -> None:
    models = Models(["a"], 7)
    assert orjson.loads(models.description("a")) == orjson.loads(models.listing())["data"][0]
