"""How long panels take to open on a large collection: made once, measured in fresh processes.

    python notebooks/benchmarks/panel_scale.py FOLDER [--chunks 100000] [--panel NAME]

The collection is synthetic: eight topics with words of their own, embedded by the words' hashes,
384 numbers each. A panel is open when its constructor has returned; what it does afterwards in
the background is told apart.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbrag
from nbrag.testing import HashEmbedder, control
from nbrag.types import Chunk, Document, Span, stable_hash

TOPICS = ("backup", "billing", "login", "mobile", "network", "report", "search", "storage")
CHUNKS_PER_DOCUMENT = 5
DIMENSION = 384
BATCH = 500
QUESTION = "backup1 backup2 backup3"


def documents(count: int) -> Iterator[tuple[Document, list[Chunk]]]:
    """Yield documents of five sections, each of one topic."""
    generator = random.Random(7)
    own = {topic: [f"{topic}{number}" for number in range(120)] for topic in TOPICS}
    common = [f"word{number}" for number in range(400)]
    for number in range(count):
        topic = TOPICS[number % len(TOPICS)]
        sections = [
            " ".join(
                generator.choice(own[topic] if generator.random() < 0.45 else common)
                for _ in range(40)
            )
            for _ in range(CHUNKS_PER_DOCUMENT)
        ]
        text = "\n\n".join(sections)
        metadata = {
            "topic_primary": topic,
            "team": ("red", "green", "blue")[number % 3],
            "year": 2015 + number % 10,
        }
        document = Document(
            f"handbook/{topic}/{number:06d}.md",
            text,
            title=f"{topic} {number}",
            metadata=metadata,
            source_hash=stable_hash(text),
        )
        chunks, start = [], 0
        for ordinal, section in enumerate(sections):
            span = Span(start, start + len(section))
            identity = stable_hash(document.id, str(ordinal))
            chunks.append(Chunk(identity, document.id, section, ordinal, span, token_count=42))
            start = span.end + 2
        yield document, chunks


def make(path: Path, chunks: int) -> None:
    """Write the collection ``docs``, judgements for it, and two pipelines."""
    embedder = HashEmbedder(dimension=DIMENSION)
    with nbrag.Workspace(path, embedder=embedder) as workspace:
        collection: Any = workspace.collection("docs")
        writer = collection.writer()

        async def write(batch: list[tuple[Document, list[Chunk]]]) -> None:
            texts = [chunk.content for _, own in batch for chunk in own]
            vectors = await embedder.embed_documents(texts)
            embedder.embedded.clear()
            entries, first = [], 0
            for document, own in batch:
                entries.append((document, own, vectors[first : first + len(own)]))
                first += len(own)
            await writer.write_documents(entries, settings_hash="made")

        batch: list[tuple[Document, list[Chunk]]] = []
        for entry in documents(chunks // CHUNKS_PER_DOCUMENT):
            batch.append(entry)
            if len(batch) == BATCH:
                nbrag.run(write(batch))
                batch = []
        if batch:
            nbrag.run(write(batch))
        workspace.save_pipeline(
            nbrag.PipelineSpec("retrieval", "keyword").with_stage("search", mode="keyword")
        )
        workspace.save_pipeline(
            nbrag.PipelineSpec("retrieval", "vector").with_stage("search", mode="vector")
        )
        nbrag.run(collection.flush())
    cases = [
        {
            "query": f"{topic}{n} {topic}{n + 1} {topic}{n + 2}",
            "relevant": [f"handbook/{topic}/{i:06d}.md"],
        }
        for n in range(25)
        for i, topic in enumerate(TOPICS)
    ]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(c) + "\n" for c in cases), "utf-8")


def _choose(panel: Any, label: str, value: Any) -> None:
    """Change a control as a person does."""
    control(panel, label).value = value


def _ask(panel: Any) -> None:
    """Ask for the first time, which loads the indices."""
    _choose(panel, "Question", QUESTION)


def _ask_again(panel: Any) -> None:
    """Ask something else."""
    _choose(panel, "Question", "billing7 billing8")


#: Per panel, what a person does with it first.
USES: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "ingest": [
        ("preview of chunks", lambda panel: panel.preview()),
        ("count", lambda p: p.count()),
    ],
    "pipeline": [("question", _ask), ("another question", _ask_again)],
    "search": [("question", _ask), ("another question", _ask_again)],
    "eval": [
        ("200 questions in two pipelines", lambda panel: panel.measure()),
        ("one question", lambda panel: panel.look("1")),
    ],
    "map": [("question", _ask), ("by team", lambda panel: _choose(panel, "Marks tell", "team"))],
}


def measure(path: Path, name: str) -> None:
    """Open one panel as the first thing of a process, and print the seconds."""
    import ipywidgets  # noqa: F401 - a notebook has it loaded before the first panel

    times = [(time.perf_counter(), time.process_time())]

    def look() -> str:
        """Return the seconds since the last look, and in brackets those of computing."""
        times.append((time.perf_counter(), time.process_time()))
        wall, busy = (times[-1][i] - times[-2][i] for i in (0, 1))
        return f"{wall:.2f} s ({busy:.2f})"

    workspace = nbrag.Workspace(path, embedder=HashEmbedder(dimension=DIMENSION))
    report = [f"file {look()}"]
    options: dict[str, Any] = {"collection": "docs"}
    sources = ["keyword", "vector"] if name in {"eval", "search"} else []
    if name == "eval":
        options["cases"] = str(path.with_suffix(".jsonl"))
    if name == "ingest":
        sources = [str(path.with_suffix(".jsonl"))]
    panel = nbrag.panel(name, workspace, *sources, **options)
    report.append(f"panel {look()}")
    panel._repr_mimebundle_()
    report.append(f"still picture {look()}")
    panel.wait(120)
    report.append(f"background {look()}")
    for words, act in USES[name]:
        act(panel)
        panel.wait(300)
        report.append(f"{words} {look()}")
    print(f"{name}: {', '.join(report)} {' '.join(panel.state.alert)}", flush=True)
    panel.close()
    workspace.close()


def main() -> None:
    """Make what is missing, and measure each panel in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--panel", action="append")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder / f"chunks-{options.chunks}"
    if not folder.exists():
        part = options.folder / f"{folder.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make(part / "handbook.duckdb", options.chunks)
        part.rename(folder)
    path = folder / "handbook.duckdb"
    from nbrag.notebook.panels import panel_definitions

    for name in options.panel or list(panel_definitions()):
        if options.here:
            measure(path, name)
        else:
            again = [sys.executable, __file__, str(options.folder), "--chunks", str(options.chunks)]
            subprocess.run([*again, "--panel", name, "--here"], check=True)


if __name__ == "__main__":
    main()
