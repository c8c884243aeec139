"""Programs that the tests of the DuckDB store run as other processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent

#: Writes documents one after the other and names each once it is committed.
WRITER = """
import asyncio, sys
sys.path.insert(0, {here!r})
from store_samples import IDENTITY, sample
from nbrag.stores.duckdb import DuckDBDatabase, create_collection, list_collections, open_collection

async def main():
    database = DuckDBDatabase({path!r})
    if "docs" not in list_collections(database):
        create_collection(database, "docs", IDENTITY)
    collection = open_collection(database, "docs")
    print("ready", flush=True)
    for number in range({first}, {last}):
        texts = [f"word{{number}} part{{part}} shared" for part in range(5)]
        # Every other document replaces an older one.
        uri = f"{{number // 2}}.md"
        entry = sample(uri, texts, seed=number, metadata={{"number": number}})
        await collection.writer().write_document(*entry, settings_hash="s")
        print(number, flush=True)
    database.close()

asyncio.run(main())
"""

#: Holds the file until its standard input is closed.
HOLDER = """
import sys
from nbrag.stores.duckdb import DuckDBDatabase
database = DuckDBDatabase({path!r}, read_only={read_only})
print("ready", flush=True)
sys.stdin.read()
"""


def start(program: str, **values: object) -> subprocess.Popen[str]:
    """Start a program and return once it says that it is ready."""
    text = textwrap.dedent(program).format(here=str(HERE), **values)
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=HERE.parents[1],
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if line.strip() != "ready":
        rest = process.stdout.read()
        process.wait()
        raise AssertionError(line + rest)
    return process


def finish(process: subprocess.Popen[str], *, kill: bool = False) -> str:
    """End a program, kindly or not, and return what it still said."""
    if kill:
        process.kill()
    output, _ = process.communicate()
    return output
