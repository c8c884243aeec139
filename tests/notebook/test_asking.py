"""``%rag_ask``: answers in a notebook."""

from __future__ import annotations

import _thread
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nbrag.errors import ConfigurationError, MagicUsageError, QueryError, SpecificationError
from nbrag.models.chat import LiteLLMChatClient
from nbrag.notebook.answering import AnswerProgress
from nbrag.notebook.session import current_workspace
from nbrag.testing import ScriptedChatClient
from nbrag.types import StageFinished, StageStarted, TextPiece

QUOTE = "Backups are kept for 35 days in the EU region."


def reply(messages: Any) -> str:
    """Answer from the passage that holds the quote, under whatever number it has."""
    for line in messages[-1].content.splitlines():
        if QUOTE in line:
            number = json.loads(line)["id"]
            return f'EVIDENCE\n[{number}] "kept for 35 days"\nANSWER\nFor 35 days [{number}].'
    if "follow-up" in messages[-1].content:
        return "How long are backups kept in the US region?"
    return "EVIDENCE\nANSWER\nNOT ANSWERED: the passages do not tell."


@pytest.fixture
def script(filled: Any) -> ScriptedChatClient:
    chat = ScriptedChatClient(reply)
    current_workspace().use_chat(chat)
    return chat


def test_without_a_model_one_line_says_how_to_give_one(filled: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a chat model") as caught:
        filled.run("%rag_ask How long are backups kept?")
    assert "%rag_config model=" in caught.value.hint
    assert "\n" not in str(caught.value.message)


def test_the_answer_is_returned_kept_and_traced(filled: Any, script: Any) -> None:
    answer = filled.run('%rag_ask -c docs -k 2 -o kept How long are "backups" kept, what\'s $5?')
    assert answer.question == 'How long are "backups" kept, what\'s $5?'
    assert filled.user_ns["kept"] is answer
    assert len(answer.passages) == 2
    assert answer.citations[0].source.endswith("backups.md")
    assert answer.citations[0].quote == "kept for 35 days"
    shown = answer._repr_mimebundle_()
    assert "For 35 days [1]." in shown["text/plain"]
    assert "backups.md" in shown["text/plain"]
    trace = filled.run("%rag_trace")
    assert [record.stage for record in trace.stages][-1] == "answer"
    rows = current_workspace().sql("SELECT DISTINCT stage FROM nbrag.trace").fetchall()
    assert ("answer",) in rows
    ledger = filled.run("%rag_ledger")
    assert [entry.stage for entry in ledger] == ["answer"]


def test_the_cell_form_quiet_and_refusals(filled: Any, script: Any) -> None:
    assert filled.run("%rag_ask -q -o kept Who?") is None
    assert filled.user_ns["kept"].outcome in {"answered", "refused"}
    answer = filled.run(
        "%%rag_ask -c docs --where \"source.endswith('prices.md')\"\nHow long\nare they?"
    )
    assert answer.question == "How long\nare they?"
    assert answer.outcome == "refused"
    assert "does not answer this" in answer._repr_mimebundle_()["text/plain"]
    with pytest.raises(QueryError, match="empty"):
        filled.run("%rag_ask")


def test_questions_stand_alone_unless_they_follow(filled: Any, script: Any) -> None:
    with pytest.raises(MagicUsageError, match="no answer yet"):
        filled.run("%rag_ask --follow-up And in the US?")
    filled.run("%rag_ask How long are backups kept?")
    alone = filled.run("%rag_ask And in the US?")
    assert alone.history == ()
    filled.run("%rag_ask How long are backups kept?")
    second = filled.run("%rag_ask --follow-up And in the US?")
    assert second.standalone_question == "How long are backups kept in the US region?"
    third = filled.run("%rag_ask --follow-up And elsewhere?")
    assert len(third.history) == 2
    assert filled.run("%rag_ask And elsewhere?").history == ()


def test_a_pipeline_says_how_it_answers(filled: Any, script: Any) -> None:
    filled.run(
        "%%rag_pipeline short -c docs\nsearch mode=keyword\nanswer passages=1 citations=false"
    )
    answer = filled.run("%rag_ask -p short How long are backups kept?")
    assert len(answer.passages) == 1
    assert answer.prompts.keys() == {"plain_answer"}
    assert (
        len(filled.run("%rag_ask -p short -k 3 How long are backups kept by the month?").passages)
        > 1
    )
    # A search through it asks no model.
    calls = len(script.calls)
    assert len(filled.run("%rag_search -p short backups")) >= 1
    assert len(script.calls) == calls
    with pytest.raises(SpecificationError, match="answer"):
        filled.run("%%rag_pipeline twice\nanswer\nanswer")


def test_no_citations_and_another_model(filled: Any, script: Any, tmp_path: Path) -> None:
    answer = filled.run("%rag_ask --no-citations How long are backups kept?")
    assert answer.citations == ()
    with pytest.raises(ConfigurationError, match="names no chat model"):
        filled.run("%rag_ask --model nonsense How long are backups kept?")


def test_progress_tells_the_stage_and_the_words() -> None:
    progress = AnswerProgress("How <b>long</b>?")
    progress.add([StageStarted("retrieve"), StageFinished("retrieve", "5 passages")])
    progress.add([StageStarted("answer", "from 5 passages"), TextPiece("For ", "For ")])
    progress.add([TextPiece("<img src=x>", "For <img src=x>")])
    state = progress.state
    shown = state._repr_mimebundle_()
    assert "How <b>long</b>? (answer: from 5 passages)" in shown["text/plain"]
    assert "<img" not in shown["text/html"]
    assert "<b>" not in shown["text/html"]
    assert "&lt;img src=x&gt;" in shown["text/html"]
    assert state == progress.state


# Stopping ----------------------------------------------------------------------------------


class SlowServer:
    """Streams an answer word by word, for ever, and notes when nobody listens any more."""

    def __init__(self) -> None:
        self.first_word = threading.Event()
        self.left = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: Any) -> None:
                pass

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for number in range(600):
                        delta = {"role": "assistant", "content": f"word{number} "}
                        event = {
                            "id": "1",
                            "object": "chat.completion.chunk",
                            "created": 1,
                            "model": "m",
                            "choices": [{"index": 0, "delta": delta}],
                        }
                        data = f"data: {json.dumps(event)}\n\n".encode()
                        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                        self.wfile.flush()
                        outer.first_word.set()
                        time.sleep(0.05)
                except OSError:
                    outer.left.set()
                    self.close_connection = True

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def slow_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    made = SlowServer()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_stop_ends_the_call_in_flight(filled: Any, slow_server: SlowServer) -> None:
    current_workspace().use_chat(LiteLLMChatClient("openai/m", api_base=slow_server.url))

    def stop() -> None:
        assert slow_server.first_word.wait(60)
        _thread.interrupt_main()

    stopper = threading.Thread(target=stop)
    stopper.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        filled.run("%rag_ask How long are backups kept?")
    stopper.join()
    assert slow_server.left.wait(10), "the server still has somebody to talk to"
    assert time.monotonic() - started < 30
    # The workspace goes on working.
    current_workspace().use_chat(ScriptedChatClient(reply))
    assert filled.run("%rag_ask How long are backups kept?").answered


CELLS = [
    """%load_ext nbrag
import asyncio, nbrag
from nbrag.testing import HashEmbedder, ScriptedChatClient

class Pieces(ScriptedChatClient):
    async def stream(self, messages, **options):
        text = (await self.complete(messages, **options)).text
        for word in text.split(" "):
            await asyncio.sleep(0.05)
            yield word + " "

reply = (
    'EVIDENCE\\n[1] "kept for 35 days"\\nANSWER\\n'
    'In the EU region they are kept for 35 days [1].'
)
workspace = nbrag.Workspace(embedder=HashEmbedder(), chat=Pieces([reply, reply]))
nbrag.use_workspace(workspace)
texts = [{"id": "a", "text": "Backups are kept for 35 days in the EU."}]
report = workspace.ingest("docs", texts)""",
    "%rag_ask -o answer How long are backups kept?",
    "answer",
    "%rag_ask -q How long are backups kept?",
]


@pytest.mark.kernel
def test_in_a_kernel_the_answer_is_one_output_that_reads_well(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, asked, shown, quiet = (cell.outputs for cell in notebook.cells)
    (output,) = asked
    assert output.output_type == "display_data"
    text = output.data["text/plain"]
    assert text.splitlines()[:2] == [
        "How long are backups kept?",
        "In the EU region they are kept for 35 days [1].",
    ]
    assert "progress" not in output.data["text/html"]
    assert shown[0].data["text/plain"] == text
    assert quiet[0].data["text/plain"] == "How long are backups kept?: answered"
