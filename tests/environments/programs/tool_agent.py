"""An agent with a tool, and the serving of a proxy that it asks. Needs httpx and uvicorn."""

import json
import threading
from contextlib import contextmanager

import httpx
import uvicorn

HOST = "127.0.0.1"


@contextmanager
def served(app):
    """Serve an ASGI app on a port of this host; yield its URL."""
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=0, log_level="warning"))
    socket = server.config.bind_socket()
    socket.listen()  # calls wait until it serves
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield f"http://{HOST}:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def converse(base_url, key, question, tool):
    """Ask until the model calls no tool; return the conversation."""
    messages = [{"role": "user", "content": question}]
    while True:
        message = asked(base_url, key, messages, tool)
        messages.append(message)
        if not message.get("tool_calls"):
            return messages
        for call in message["tool_calls"]:
            total = sum(json.loads(call["function"]["arguments"]).values())
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(total)})


def asked(base_url, key, messages, tool, **more):
    """Make a call of Chat Completions; return the message, or the text of a stream."""
    tools = [{"type": "function", "function": tool}]
    answer = httpx.post(
        f"{base_url}/chat/completions",
        json={"model": "policy", "messages": messages, "tools": tools, **more},
        headers={"authorization": f"Bearer {key}"},
        timeout=60,
    )
    answer.raise_for_status()
    return answer.text if more.get("stream") else answer.json()["choices"][0]["message"]
