"""A random model whose answers are as long as asked, and prompts that have no beginning in common:
without a vLLM.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from benchmarks.gpu.part import Asked, Lacks
from benchmarks.gpu.vllm import throughput
from benchmarks.gpu.vllm.talker import write_talker
from benchmarks.load.http_load import SESSION, Load
from seamlessflow.demo.tokenizer import CONTROL_TOKENS, MARKUP_TOKENS
from seamlessflow.infra.rendering.tokenizer import Tokenizer

NEVER = 20.0
"""Logits by which a token that is never sampled lies below the others: a part in 5e8."""


def test_a_talker_samples_only_tokens_of_texts(tmp_path: Path) -> None:
    write_talker(tmp_path, small=True)
    tokenizer = Tokenizer.load(tmp_path)
    model: Any = Qwen3ForCausalLM.from_pretrained(tmp_path)
    marks = [tokenizer.token_id(token) for token in CONTROL_TOKENS + MARKUP_TOKENS]
    texts = torch.ones(model.config.vocab_size, dtype=torch.bool)
    texts[tokenizer.vocabulary_size :] = False
    texts[marks] = False
    prompt = torch.tensor(
        [tokenizer.encode("<|im_start|>user\nkey 7<|im_end|>\n<|im_start|>assistant\n")]
    )
    with torch.no_grad():
        answer_BT = model.generate(prompt, max_new_tokens=64, do_sample=True, top_k=0)
        logits_TV = model(answer_BT).logits[0, prompt.shape[1] - 1 :]
    assert len(logits_TV) == 64 + 1
    assert logits_TV[:, texts].amin() - logits_TV[:, ~texts].amax() > NEVER


def test_each_session_sends_its_own_number_in_all_its_calls() -> None:
    body = json.dumps({"content": f"{SESSION}: the rest"})
    load = Load("127.0.0.1", 1, 1, 0, 1, ["key a", "key b"], [body, body])
    sent = [request for session in load.sessions for request in load.requests(*session)]
    contents = []
    for request in sent:
        head, _, content = request.partition(b"\r\n\r\n")
        assert f"content-length: {len(content)}".encode() in head
        contents.append(json.loads(content)["content"])
    assert contents == ["0: the rest"] * 2 + ["1: the rest"] * 2
    assert [b"Bearer key a" in request for request in sent] == [True, True, False, False]


def test_the_part_lacks_a_vllm_where_its_python_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_ROLLOUT__VLLM__PYTHON", str(tmp_path / "python"))
    with pytest.raises(Lacks, match="vLLM: there is no"):
        throughput.run(Asked("cpu", tmp_path, small=True))
