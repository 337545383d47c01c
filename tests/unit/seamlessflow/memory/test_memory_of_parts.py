"""Memory of ranks and engines, by part, against figures that are known."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.infra.device_model.model_shape import ModelShape, read_shape
from seamlessflow.machine import total
from seamlessflow.memory.engine import EngineShape, engine_memory
from seamlessflow.memory.training import RankMemory, RankShape, rank_memory
from seamlessflow.trainer.activations import fitting_tokens
from seamlessflow.trainer.parallelism import TREE_TOKENS
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.run_files import model_headers

GIBIBYTE = 1 << 30


@pytest.fixture(scope="module")
def shape(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    return read_shape(model_headers(tmp_path_factory.mktemp("model")))


def rank(shape: ModelShape, tokens: int = 1, leaves: bool = True, **changes: Any) -> RankMemory:
    settings = TrainerSection.model_validate(changes)
    return rank_memory(RankShape(shape, tokens, tokens, True, leaves), settings)


def sized(memory: RankMemory) -> dict[str, float]:
    return {part.name: part.bytes for part in (*memory.device_parts, *memory.host)}


def test_a_parameter_takes_sixteen_bytes_and_is_divided_by_the_ranks(shape: ModelShape) -> None:
    whole, sharded = (
        total(rank(shape, backend=backend, ranks=ranks).kept[:3])
        for backend, ranks in (("torch", 1), ("fsdp2", 8))
    )
    assert whole == 16 * shape.parameters
    assert sharded == whole / 8


@pytest.mark.parametrize("settings", [{}, {"attention": "eager"}, {"layout": "padded"}])
def test_a_micro_batch_on_a_cpu_takes_640_mebibytes_of_activations_by_default(
    shape: ModelShape, settings: dict[str, Any]
) -> None:
    assert shape.layer is not None
    small = replace(shape, layer=replace(shape.layer, count=4))
    trainer = TrainerSection.model_validate(settings)
    tokens = fitting_tokens(small, trainer, 1024)
    memory = rank_memory(RankShape(small, tokens, 1024, False, False), trainer)
    assert 0.5 * GIBIBYTE < memory.phases["logits"][0].bytes < 0.75 * GIBIBYTE
    few = TrainerSection.model_validate({**settings, "micro_batch_tokens": 16})
    assert fitting_tokens(small, few, 1024) == 16


def test_the_layers_share_a_mask_of_no_more_than_the_largest_tree_on_a_cpu(
    shape: ModelShape,
) -> None:
    longest = 4 * TREE_TOKENS

    def masks(on_gpu: bool, **settings: Any) -> float:
        trainer = TrainerSection.model_validate({"micro_batch_tokens": 4096, **settings})
        memory = rank_memory(RankShape(shape, longest, longest, on_gpu, False), trainer)
        return sum(part.bytes for part in memory.phases["logits"] if part.name == "masks")

    assert shape.layer is not None
    assert masks(on_gpu=False) == TREE_TOKENS**2 * (1 + 4)
    assert masks(on_gpu=False, layout="tree") == longest**2 * (1 + 4)
    assert masks(on_gpu=True, layout="tree") == longest**2 * (1 + 4 * shape.layer.count)
    assert masks(on_gpu=False, layout="padded") == masks(on_gpu=True) == 0


def test_weights_and_moments_in_half_precision_take_half(shape: ModelShape) -> None:
    half = rank(shape, dtype="bfloat16", master_dtype="bfloat16")
    assert total(half.kept[:3]) == 8 * shape.parameters
    assert "weights (bfloat16)" in sized(half)


def test_autocast_keeps_a_copy_of_the_weights_in_its_type(shape: ModelShape) -> None:
    kept = rank(shape, dtype="bfloat16").phases["logits"]
    assert {part.name: part.bytes for part in kept}["weights (bfloat16)"] == 2 * shape.parameters


def test_of_a_checkpoint_a_rank_copies_its_own_part(shape: ModelShape) -> None:
    parts = sized(rank(shape, backend="megatron", ranks=8, megatron={"tensor_parallel": 4}))
    assert parts["weights (float32)"] == shape.parameters
    assert parts["copy for a checkpoint"] == 12 * shape.parameters / 4
    sharded = sized(rank(shape, backend="fsdp2", ranks=8))
    assert sharded["copy for a checkpoint"] == 12 * shape.parameters / 8


def test_ranks_that_share_layers_each_have_what_is_as_wide_as_the_stream(shape: ModelShape) -> None:
    def activations(parallel: int, **more: Any) -> float:
        divided: Any = {"ranks": parallel, "megatron": {"tensor_parallel": parallel}}
        memory = rank(shape, 8192, backend="megatron", **divided, **more)
        return {part.name: part.bytes for part in memory.phases["logits"]}["activations"]

    single, two, four = (activations(ranks) for ranks in (1, 2, 4))
    # The other half goes with each division, what is in all ranks stays.
    assert single - two == pytest.approx(2 * (two - four))
    assert two > single / 2
    assert activations(1, dtype="bfloat16") < 0.75 * single


def test_a_reference_is_divided_as_the_model_is(shape: ModelShape) -> None:
    divided = {"backend": "megatron", "ranks": 4, "megatron": {"tensor_parallel": 2}}
    settings = TrainerSection.model_validate({**divided, "dtype": "bfloat16"})
    memory = rank_memory(RankShape(shape, 1, 1, True, True, reference=shape), settings)
    assert sized(memory)["reference (bfloat16)"] == 2 * shape.parameters / 2


def test_each_opponent_of_a_loss_of_pairs_is_one_more_model(shape: ModelShape) -> None:
    squared: dict[str, Any] = {
        "loss": {"surrogate": "pairs_squared"},
        "pairs": {"opponents": {"most": 3}},
    }
    alone, three = sized(rank(shape)), sized(rank(shape, **squared))
    added = {f"opponent {number} (float32)": 4 * shape.parameters for number in (1, 2, 3)}
    assert {name: size for name, size in three.items() if "opponent" in name} == added
    assert not any("opponent" in name for name in alone)


def test_of_an_adapter_the_base_is_kept_once_in_half_precision(shape: ModelShape) -> None:
    adapter = {"rank": 8, "targets": ["q_proj", "v_proj"]}
    memory = rank(shape, dtype="bfloat16", adapter=adapter)
    layer = shape.layer
    assert layer is not None
    widths = 2 * layer.hidden + layer.query_width + layer.key_width
    trained = 8 * layer.count * widths
    assert total(memory.kept[:1]) == 2 * shape.parameters
    assert total(memory.kept[1:4]) == 16 * trained
    parts = sized(memory)
    assert "weights (bfloat16)" not in parts
    assert parts["copy for a checkpoint"] == 12 * trained
    everywhere = rank(shape, dtype="bfloat16", adapter={"rank": 8})
    assert total(everywhere.kept[1:4]) > total(memory.kept[1:4])


def test_recomputed_activations_are_the_inputs_of_the_layers(shape: ModelShape) -> None:
    kept, again = (
        rank(shape, 8192, backend="fsdp2", dtype="bfloat16", gradient_checkpointing=recomputed)
        for recomputed in (False, True)
    )
    # At least the 34 bytes of a layer that has no gate, by Megatron's formula (arXiv 2205.05198).
    passes = [
        {part.name: part.bytes for part in memory.phases["logits"]} for memory in (kept, again)
    ]
    assert 34 < passes[0]["activations"] / (36 * 8192 * 4096) < 65
    assert passes[1]["inputs of layers"] == pytest.approx(2 * 38 * 8192 * 4096, rel=0.06)
    assert passes[0]["activations"] / 36 < again.phases["layers"][-1].bytes * 1.01


@pytest.mark.parametrize("backend", ["torch", "fsdp2", "megatron"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_take_no_more_the_more_tokens_there_are(
    shape: ModelShape, backend: str, dtype: str
) -> None:
    def logits(tokens: int) -> float:
        memory = rank(shape, tokens, backend=backend, dtype=dtype)
        return sum(part.bytes for part in memory.phases["logits"] if "logits" in part.name)

    few, many, most = (logits(tokens) for tokens in (64, 1024, 32_768))
    assert few < many == most < GIBIBYTE / 2
    memory = rank(shape, 32_768, backend=backend, dtype=dtype)
    assert sized(memory)["gradient of the output layer"] >= 4 * shape.output


def test_eager_attention_has_scores_of_all_pairs(shape: ModelShape) -> None:
    half: dict[str, Any] = {"dtype": "bfloat16", "backend": "fsdp2"}
    plain, eager = (
        total(rank(shape, 8192, attention=attention, **half).phases["logits"])
        for attention in ("sdpa", "eager")
    )
    assert eager - plain > 36 * 32 * 8192**2 * 6


def test_only_a_role_that_leaves_takes_the_host(shape: ModelShape) -> None:
    name = "weights and moments without the role"
    assert sized(rank(shape))[name] == 12 * shape.parameters
    assert name not in sized(rank(shape, leaves=False))


def test_an_engine_holds_the_keys_and_values_of_what_its_weights_leave(shape: ModelShape) -> None:
    def engine(devices: int) -> EngineShape:
        return EngineShape(shape, devices, 2, 256, 32_768, None, True)

    single = engine_memory(engine(1), 80e9)
    assert single.token_bytes == 144 * 1024  # 36 layers of 8 heads of 128, twice, of two bytes
    assert 340_000 < single.kv_tokens < 390_000
    assert single.turns == single.kv_tokens // 32_768
    four = engine_memory(engine(4), 80e9)
    assert four.token_bytes == single.token_bytes / 4
    assert four.kv_tokens > 4 * single.kv_tokens
    assert engine_memory(engine(16), 80e9).token_bytes == single.token_bytes / 8
