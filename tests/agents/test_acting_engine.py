"""The engine of the agents' tests is one that a worker serves with."""

from pathlib import Path

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.probe.asking import EngineProbe
from seamlessflow.producers.rollout.probe.questions import PROMPT_TEXT
from seamlessflow.schemas.tokens import pack, unpack
from tests.agents.engine import record as engine_record
from tests.agents.engine.engine import ActingEngine
from tests.builders.rollout.generation import Generation

STOP = "<|im_end|>"
LINE = "Zwei, or not? <tool_call>\n{}\n</tool_call>"


def test_it_says_its_line_in_pieces_passes_the_probe_and_keeps_a_record(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    stop = tokenizer.encode(STOP)
    engine = ActingEngine(tokenizer, lambda prompt: LINE, tmp_path / "record", version=3)
    try:
        EngineProbe(deadline_s=60).whole(engine, pack(tokenizer.encode(PROMPT_TEXT)), 3)
        asked = SamplingParams(1000, stop_token_ids=tuple(stop))
        said = Generation(engine, tokenizer.encode("What?"), asked, "turn/1")
        assert said.finish() == "stop"
    finally:
        engine.close()

    assert tokenizer.decode(said.completion) == LINE + STOP
    assert said.completion != tokenizer.encode(LINE + STOP)
    recorded = engine_record.read(tmp_path / "record")[-1]
    assert recorded.turn_id == "turn"
    assert unpack(bytes.fromhex(recorded.tokens)) == said.completion
