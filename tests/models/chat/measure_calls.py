"""How long 200 calls of a server that answers after 200 ms take, 16 at a time.

``python tests/models/chat/measure_calls.py`` prints five runs without a cache, and one with
everything kept. The least that is possible is 2.5 s (2.6 s in whole rounds of 16).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from nbrag.background import run
from nbrag.models.chat import LiteLLMChatClient, ManagedChatClient
from nbrag.types import ChatMessage


class Kept(dict):
    def put(self, key, messages, options, reply):
        self[key] = reply

    def remove(self, key):
        self.pop(key, None)


async def ask(chat: ManagedChatClient, questions: list[str]) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(chat.complete([ChatMessage("user", text)]) for text in questions))
    return time.perf_counter() - started


def measure(url: str) -> None:
    client = LiteLLMChatClient("openai/made-up", api_base=url)
    chat = ManagedChatClient(client, concurrency=16, cache=Kept())
    run(ask(chat, ["warm"]))
    runs = [run(ask(chat, [f"{turn} {n}" for n in range(200)])) for turn in range(5)]
    kept = run(ask(chat, [f"0 {n}" for n in range(200)]))
    sys.stdout.write(
        f"200 calls: {' '.join(f'{seconds:.2f}' for seconds in runs)} s, "
        f"median {statistics.median(runs):.2f} s = {statistics.median(runs) / 2.5:.2f} x 2.5 s; "
        f"kept: {kept * 1000:.0f} ms\n"
    )


if __name__ == "__main__":
    os.environ["OPENAI_API_KEY"] = "none"
    server = Path(__file__).with_name("delayed_server.py")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(server), "0.2"], stdin=pipe, stdout=pipe, text=True
    ) as process:
        measure(f"http://127.0.0.1:{int(process.stdout.readline())}/v1")
        process.stdin.close()
