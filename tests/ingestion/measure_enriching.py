"""How long three stages over 1,000 chunks take with a server that answers after 200 ms.

``python tests/ingestion/measure_enriching.py`` prints three runs, 16 calls at a time; the least
that is possible is 37.5 s.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import nbrag
from nbrag.models.chat import LiteLLMChatClient
from nbrag.testing import HashEmbedder
from nbrag.types import ChatMessage

ANSWER = {
    "people": [],
    "organizations": [],
    "technologies": [],
    "versions": [],
    "primary": "backup",
    "secondary": [],
    "questions": ["What does the document tell of?"],
}
CHUNKS, DELAY, CONCURRENCY = 1000, 0.2, 16


def measure(url: str, turn: int) -> float:
    records = [
        {"id": str(n), "text": f"Document {turn} {n} tells of {n * 7}."} for n in range(CHUNKS)
    ]
    chat = LiteLLMChatClient("openai/made-up", api_base=url)
    # LiteLLM takes seconds to import, which says nothing about the calls.
    nbrag.run(chat.complete([ChatMessage("user", "warm")]))
    with nbrag.Workspace(embedder=HashEmbedder(), chat=chat, concurrency=CONCURRENCY) as workspace:
        builder = workspace.ingestion_pipeline().use_entities()
        builder = builder.use_topics(taxonomy=("backup", "people"))
        pipeline = builder.use_questions(per_chunk=1, filter=False).build()
        collection = workspace.collection("docs")
        started = time.perf_counter()
        report = nbrag.run(pipeline.run(records, collection))
        seconds = time.perf_counter() - started
        assert report.counts == {"added": CHUNKS}
        assert not report.warnings, report.warnings
        assert len(workspace.ledger()) == 3 * CHUNKS
    return seconds


if __name__ == "__main__":
    os.environ["OPENAI_API_KEY"] = "none"
    server = Path(__file__).parents[1] / "models" / "chat" / "delayed_server.py"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(server), str(DELAY), json.dumps(ANSWER)],
        stdin=pipe,
        stdout=pipe,
        text=True,
    ) as process:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        runs = [measure(url, turn) for turn in range(3)]
        process.stdin.close()
    ideal = 3 * CHUNKS * DELAY / CONCURRENCY
    sys.stdout.write(
        f"{' '.join(f'{seconds:.1f}' for seconds in runs)} s, median "
        f"{statistics.median(runs) / ideal:.2f} x {ideal} s\n"
    )
