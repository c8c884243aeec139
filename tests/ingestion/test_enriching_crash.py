"""An ingestion with all model stages, killed again and again, ends as an undisturbed one does."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

#: Ingests with every stage that asks a model; the model is a function of the prompt, and writes
#: each call down before it answers.
PROGRAM = """
import hashlib, json, os, re, sys, time
import nbrag
from nbrag.testing import HashEmbedder
from nbrag.types import ChatReply

folder, path, log, form, delay = sys.argv[1:5] + [float(sys.argv[5])]

class Model:
    model = "made/up"
    async def complete(self, messages, **options):
        asked = messages[-1].content
        key = hashlib.sha256(json.dumps([m.content for m in messages]).encode()).hexdigest()
        fields = options["response_format"]["json_schema"]["schema"]["properties"]
        with open(log, "a") as file:
            file.write(("summary-" if "summary" in fields else "") + key + "\\n")
        time.sleep(delay * 5 if "summary" in fields else delay)
        passages = re.findall(r'"text": ("(?:[^"\\\\]|\\\\.)*")', asked) or ['""']
        words = re.findall(r"\\b[A-Z][a-z]{3,}\\b", json.loads(passages[-1]))
        answer = {}
        for name, field in fields.items():
            if name == "primary":
                answer[name] = field.get("enum", ["other"])[len(asked) % 2]
            elif field.get("type") == "array":
                questions = [f"What is meant by {w} here?" for w in (words or ["it"])[:2]]
                answer[name] = questions if "question" in name else words[:2]
            elif name == "summary":
                answer[name] = f"Summary {key[:8]} is about {words or 'little'} here."
            else:
                answer[name] = f"This passage is about {words or 'nothing'}."
        return ChatReply(json.dumps(answer), 10, 5)

with nbrag.Workspace(path, embedder=HashEmbedder(), chat=Model()) as workspace:
    pipeline = (
        workspace.ingestion_pipeline("docs")
        .use_contextual_header()
        .use_entities()
        .use_topics(taxonomy=("backup", "people"))
        .use_questions(per_chunk=2, filter=False)
        .use_tree_index(form=form, group_tokens=1_000, summary_tokens=60)
        .build()
    )
    print("ready", flush=True)
    report = nbrag.run(pipeline.run([folder], workspace.collection("docs")))
    print(json.dumps({"counts": report.counts, "warnings": report.warnings}), flush=True)
"""


def tables(path: Path) -> dict[str, list[Any]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        columns = [
            str(name)
            for (name,) in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'docs'"
                " AND table_name = 'chunks' AND column_name <> 'row' ORDER BY 1"
            ).fetchall()
        ]
        listed = ", ".join(f'"{column}"' for column in columns)
        chunks = connection.execute(f"SELECT {listed} FROM docs.chunks ORDER BY id").fetchall()
        documents = connection.execute(
            "SELECT id, uri, text, source_hash, settings_hash FROM docs.documents ORDER BY id"
        ).fetchall()
        left = connection.execute("SELECT count(*) FROM docs.staged_vectors").fetchall()
        kinds = connection.execute("SELECT kind, count(*) FROM docs.chunks GROUP BY 1").fetchall()
        tree = connection.execute("SELECT * FROM docs.tree ORDER BY ALL").fetchall()
        astray = connection.execute(
            "SELECT count(*) FROM docs.tree WHERE parent NOT IN (SELECT id FROM docs.chunks)"
            " OR child NOT IN (SELECT id FROM docs.chunks)"
        ).fetchall()
        orphans = connection.execute(
            "SELECT count(*) FROM docs.chunks WHERE parent_id IS NOT NULL"
            " AND parent_id NOT IN (SELECT id FROM docs.chunks)"
        ).fetchall()
        named = connection.execute(
            "SELECT count(*) FROM docs.chunks WHERE len(entities_people) > 0 AND kind = 'original'"
        ).fetchall()
    assert (orphans, astray) == ([(0,)], [(0,)])
    assert len({level for _, _, level in tree}) > 1
    assert named > [(20,)]
    assert dict(kinds)["hypothetical_query"] > 20
    return {
        "columns": columns,
        "chunks": chunks,
        "documents": documents,
        "left": left,
        "tree": tree,
    }


def start(folder: Path, path: Path, log: Path, form: str, delay: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(path), str(log), form, str(delay)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


@pytest.mark.parametrize("form", ["outline", "raptor"])
def test_killed_runs_end_as_an_undisturbed_one_and_pay_for_nothing_twice(
    repository: Path, tmp_path: Path, form: str
) -> None:
    folder = repository / "notebooks" / "corpus" / "handbook" / "operations"
    calm, rough = tmp_path / "calm.duckdb", tmp_path / "rough.duckdb"
    whole = start(folder, calm, tmp_path / "calm.log", form, 0)
    out, _ = whole.communicate(timeout=120)
    report = json.loads(out)
    assert report["warnings"] == []
    calls = (tmp_path / "calm.log").read_text().split()
    assert len(set(calls)) > 100
    assert sum(call.startswith("summary-") for call in calls) > 8

    log = tmp_path / "rough.log"
    chance = random.Random(11)
    kills = int(os.environ.get("NBRAG_TEST_KILLS", "6"))
    for _ in range(kills):
        process = start(folder, rough, log, form, 0.004)
        time.sleep(chance.uniform(0.05, 0.6))
        process.kill()
        process.communicate()
    # Some in the midst of the summaries, which come last.
    for summaries in (2, 6):
        process = start(folder, rough, log, form, 0.004)
        deadline = time.monotonic() + 60
        try:
            while not log.exists() or log.read_text().count("summary-") < summaries:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.01)
        finally:
            process.kill()
            process.communicate()
        with duckdb.connect(str(rough), read_only=True) as connection:
            assert connection.execute("SELECT count(*) FROM docs.tree").fetchall() == [(0,)]
        kills += 1
    last = start(folder, rough, log, form, 0)
    out, _ = last.communicate(timeout=120)
    assert json.loads(out)["warnings"] == []

    assert tables(rough) == tables(calm)
    paid = Counter(log.read_text().split())
    assert set(paid) == set(calls)
    # A call that was under way when the kill came has no answer to keep: at most those are asked
    # for again, eight at a time.
    assert sum(paid.values()) - len(paid) <= 8 * kills
