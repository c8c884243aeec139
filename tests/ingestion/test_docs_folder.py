"""All files of the public document folder: outcome of each, spans, token limit, time."""

from __future__ import annotations

import csv
import time

import pytest

from nbrag.errors import ReaderError
from nbrag.ingestion.chunkers import StructureChunker
from nbrag.ingestion.readers import reader_for
from nbrag.ingestion.sources import expand_sources

pytestmark = pytest.mark.data

#: Files that can't be read, and why; all others can.
REFUSED = {
    "gen/empty.md": "EmptyDocument",
    "gen/front-matter-only.md": "EmptyDocument",
    "gen/only-whitespace.txt": "EmptyDocument",
    "gen/not-a-pdf.pdf": "CorruptDocument",
    "gen/truncated-half.pdf": "CorruptDocument",
    "gen/truncated.docx": "CorruptDocument",
    "gen/truncated.ipynb": "CorruptDocument",
    "other/random.bin": "UnsupportedFormat",
    "pdf/encrypted-libreoffice.pdf": "PasswordRequired",
    "pdf/encrypted-user-password-r6.pdf": "PasswordRequired",
    "pdf/scan-no-text-haystack.pdf": "NoTextLayer",
    "pdf/scan-no-text-medical.pdf": "NoTextLayer",
}


@pytest.fixture(scope="module")
def outcomes(data_folder, model_counter):
    """Read and cut every file once; return what became of each, and how long it took."""
    chunker = StructureChunker(model_counter)
    found, begun = {}, time.perf_counter()
    for item in expand_sources(data_folder / "docs", base=data_folder / "docs"):
        try:
            data = item.load()
            reader = reader_for(item.name, item.media_type, data)
            document = reader.read(data, uri=item.uri, name=item.name)
            found[item.uri] = (document, chunker.chunk(document))
        except ReaderError as error:
            found[item.uri] = error
    return found, time.perf_counter() - begun


def test_every_file_has_the_expected_outcome(data_folder, outcomes):
    with (data_folder / "docs" / "MANIFEST.tsv").open(encoding="utf-8") as manifest:
        names = [row["file"] for row in csv.DictReader(manifest, delimiter="\t")]
    found, _ = outcomes
    assert sorted({*names, "MANIFEST.tsv"}) == sorted(found)
    refused = {uri: type(e).__name__ for uri, e in found.items() if isinstance(e, ReaderError)}
    assert refused == REFUSED
    assert all(uri.rpartition("/")[2] in str(found[uri]) for uri in refused)


def test_every_chunk_is_its_stretch_of_text_and_fits(outcomes, model_counter):
    found, _ = outcomes
    for result in found.values():
        if isinstance(result, ReaderError):
            continue
        document, chunks = result
        assert chunks
        for block in document.blocks:
            assert 0 <= block.start < block.end <= len(document.text)
        for chunk in chunks:
            assert chunk.content == document.text[chunk.span.start : chunk.span.end]
        counts = model_counter.count_tokens([chunk.embedding_text for chunk in chunks])
        assert max(counts) <= 256
        assert counts == [chunk.token_count for chunk in chunks]


def test_pdf_chunks_have_pages(outcomes):
    found, _ = outcomes
    for uri, result in found.items():
        if uri.endswith(".pdf") and not isinstance(result, ReaderError):
            assert all(chunk.span.page for chunk in result[1])
    pages = {chunk.span.page for chunk in found["pdf/two-column-tacl-qed.pdf"][1]}
    assert pages == set(range(1, 18))


def test_equal_files_give_equal_text_and_different_ids(outcomes):
    (a, chunks_a), (b, chunks_b) = (outcomes[0][f"gen/dup-{x}.md"] for x in "ab")
    assert a.text == b.text
    assert [c.content for c in chunks_a] == [c.content for c in chunks_b]
    assert not {c.id for c in chunks_a} & {c.id for c in chunks_b}


def test_the_folder_is_read_in_time(outcomes):
    assert outcomes[1] < 60
