"""An agent behind rLLM's gateway: `python rllm_traces.py ORDERS`.

ORDERS is JSON: `base_url` of a session, whose key is in SESSION_KEY; `question` and `tool`. rLLM's
gateway passes calls on with `return_token_ids` and `logprobs`, and keeps what it gets. Prints its
traces; the last of them is of a streamed call.
"""

import json
import os
import sys
import time

from rllm_model_gateway import GatewayClient, GatewayConfig, create_app
from tool_agent import asked, converse, served

LIMIT_S = 120


def main(orders):
    """Let the agent work, and ask once more by a stream."""
    worker = {"url": orders["base_url"], "model_name": "policy"}
    config = GatewayConfig(workers=[worker], store_worker="memory", sync_traces=True)
    key = os.environ["SESSION_KEY"]
    with served(create_app(config)) as url, GatewayClient(url) as client:
        session = client.create_session()
        base_url = client.get_session_url(session)
        messages = converse(base_url, key, orders["question"], orders["tool"])
        asked(base_url, key, messages[:-1], orders["tool"], stream=True)
        turns = sum(message["role"] == "assistant" for message in messages) + 1
        until = time.monotonic() + LIMIT_S
        while len(traces := client.get_session_traces(session)) < turns:
            if time.monotonic() > until:
                sys.exit(f"{len(traces)} traces of {turns}")
    for trace in traces:
        shown = {
            name: getattr(trace, name)
            for name in ("prompt_token_ids", "completion_token_ids", "logprobs")
        }
        print(json.dumps(shown))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
