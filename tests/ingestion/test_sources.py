"""Files, folders, globs, URLs, records and tables as sources."""

from __future__ import annotations

import http.server
import itertools
import os
import threading

import duckdb
import pyarrow as pa
import pytest

from nbrag.errors import (
    ConfigurationError,
    EmptyDocument,
    ReaderError,
    SourceNotFound,
    UnsupportedFormat,
)
from nbrag.ingestion.readers import reader_for
from nbrag.ingestion.sources import expand_sources
from nbrag.protocols import SourceItem
from nbrag.types import Document


@pytest.fixture
def folder(tmp_path):
    for path in ["b.md", "a.md", "sub/c.txt", "sub/deep/d.md", ".hidden.md", ".git/config",
                 "__pycache__/x.pyc", "sub/.ipynb_checkpoints/c.md", "~$a.docx",
                 "odd [1].md"]:  # fmt: skip
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path)
    return tmp_path


def uris(sources, base):
    return [item.uri for item in expand_sources(sources, base=base)]


def test_folder_is_walked_in_order_without_hidden_files(folder):
    items = list(expand_sources(str(folder), base=folder))
    assert [item.uri for item in items] == [
        "a.md",
        "b.md",
        "odd [1].md",
        "sub/c.txt",
        "sub/deep/d.md",
    ]
    assert items[3].load() == b"sub/c.txt"
    assert items[3].name == "c.txt"
    assert items[3].metadata == {"folder": "sub", "file_name": "c.txt"}
    assert items[0].metadata["folder"] == "."


def test_uris_are_relative_to_the_base_or_absolute(folder, monkeypatch):
    assert uris("sub/c.txt", folder) == ["sub/c.txt"]
    assert uris(folder / "sub" / ".." / "a.md", folder) == ["a.md"]
    assert uris(folder / "a.md", folder / "sub") == [(folder / "a.md").as_posix()]
    monkeypatch.chdir(folder / "sub")
    assert [item.uri for item in expand_sources("c.txt")] == ["c.txt"]
    assert [item.uri for item in expand_sources("../a.md")] == [(folder / "a.md").as_posix()]


def test_globs(folder):
    assert uris("**/*.md", folder) == ["a.md", "b.md", "odd [1].md", "sub/deep/d.md"]
    assert uris("*.md", folder) == ["a.md", "b.md", "odd [1].md"]
    assert uris("s*", folder) == ["sub/c.txt", "sub/deep/d.md"]
    assert uris(str(folder / "sub" / "*.txt"), folder) == ["sub/c.txt"]
    assert uris(".git/*", folder) == [".git/config"]


def test_a_name_with_glob_signs_is_a_file_first(folder):
    assert uris("odd [1].md", folder) == ["odd [1].md"]


def test_the_same_file_comes_once(folder):
    (folder / "link.md").symlink_to(folder / "a.md")
    assert uris(["a.md", folder, "*.md", folder / "sub" / ".." / "a.md"], folder).count("a.md") == 1
    assert "link.md" not in uris(["a.md", "link.md"], folder)


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("a.mdx", "no file or folder a.mdx", "did you mean 'a.md'"),
        ("nowhere/a.md", "no file or folder nowhere/a.md", "folder"),
        ("*.pdf", r"no file matches \*\.pdf", ""),
        ("with\x00nul", "no file or folder", ""),
        ("x" * 5000, "no file or folder", ""),
    ],
)
def test_what_is_not_there_becomes_a_failing_item(folder, source, message, hint):
    (item,) = expand_sources(source, base=folder)
    with pytest.raises(SourceNotFound, match=message) as caught:
        item.load()
    assert hint in caught.value.hint


def test_empty_folder_becomes_a_failing_item(folder):
    (folder / "void").mkdir()
    (item,) = expand_sources("void", base=folder)
    with pytest.raises(SourceNotFound, match="has no files"):
        item.load()


def test_files_that_can_not_be_read(folder):
    (folder / "broken.md").symlink_to(folder / "gone.md")
    (item,) = expand_sources("broken.md", base=folder)
    with pytest.raises(SourceNotFound, match=r"broken\.md is a link to nothing"):
        item.load()
    os.mkfifo(folder / "pipe")
    (item,) = expand_sources("pipe", base=folder)
    with pytest.raises(UnsupportedFormat, match="regular"):
        item.load()
    (item,) = expand_sources("a.md", base=folder)
    (folder / "a.md").unlink()
    with pytest.raises(SourceNotFound, match=r"a\.md is gone"):
        item.load()


def test_permissions(folder, monkeypatch):
    (item,) = expand_sources("a.md", base=folder)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(ReaderError, match=r"a\.md can't be opened: permission denied"):
        item.load()


def documents(sources, **options):
    return [item.document for item in expand_sources(sources, **options)]


def test_records():
    first, second = documents([
        {"text": "one\r\ntwo", "id": 7, "title": " T\x00 ", "topic": "x", "n": {"a": 1.5}},
        {"text": "three", "uri": "my/uri"},
    ])  # fmt: skip
    assert (first.uri, first.text, first.title) == ("7", "one\ntwo", "T")
    assert first.metadata == {"topic": "x", "n_a": 1.5}
    assert second.uri == "my/uri"
    assert [first.text[b.start : b.end] for b in first.blocks] == ["one\ntwo"]


def test_pairs_texts_and_documents():
    pair, text, given = documents([
        ("a text", {"topic": "x"}), "words that are\na text", Document("d", "t"),
    ])  # fmt: skip
    assert (pair.text, pair.metadata) == ("a text", {"topic": "x"})
    assert text.text == "words that are\na text"
    assert given.uri == "d"
    assert documents("a text of several words")[0].text == "a text of several words"
    assert documents(("single pair", {"a": 1}))[0].text == "single pair"


def test_mistyped_paths_are_not_texts(tmp_path):
    for source in ["my notes/todo list.md", "some file name.md", "reports"]:
        (item,) = expand_sources(source, base=tmp_path)
        assert item.document is None


def test_identities_of_records_follow_their_text():
    one, two, again = documents([{"text": "a"}, {"text": "b"}, {"text": "a", "x": 1}])
    assert one.uri == again.uri != two.uri
    assert one.source_hash != again.source_hash


def test_source_items_pass_through():
    item = SourceItem("u", "n", load=bytes)
    assert list(expand_sources(item)) == [item]


def test_generators_are_gone_through_lazily():
    endless = ({"text": f"text {n}", "id": n} for n in itertools.count())
    assert [i.uri for i in itertools.islice(expand_sources(endless), 3)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ({"txt": "x"}, ReaderError, "record 1 has no field 'text'"),
        ({"text": "  ", "id": 5}, EmptyDocument, "record 1 is empty"),
        ({"text": None}, EmptyDocument, "record 1 is empty"),
        ({"text": float("nan")}, EmptyDocument, "record 1 is empty"),
        ({"text": 5}, ReaderError, "of type int"),
    ],
)
def test_bad_records_fail_alone(record, error, message):
    bad, good = expand_sources([record, {"text": "fine"}])
    with pytest.raises(error, match=message):
        bad.load()
    assert good.document.text == "fine"


def test_failing_records_have_names_of_their_own():
    items = list(expand_sources([{"text": ""}, {"text": ""}, {"x": 1}]))
    assert len({item.uri for item in items}) == 3


def test_arrow_tables_and_duckdb_relations():
    table = pa.table({"body": ["one", "two"], "id": [1, 2], "tags": [["a"], []]})
    found = documents(table, text_column="body")
    assert [(d.uri, d.text, d.metadata) for d in found] == [
        ("1", "one", {"tags": ["a"]}),
        ("2", "two", {}),
    ]
    with duckdb.connect() as connection:
        relation = connection.sql(
            "SELECT 'n' || i AS text, i AS id, DATE '2024-05-01' AS d FROM range(3000) t(i)"
        )
        found = documents(relation)
        assert len(found) == 3000
        assert (found[2].uri, found[2].text, found[2].metadata) == ("2", "n2", {"d": "2024-05-01"})


def test_pandas_and_polars_frames():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({
        "text": ["a", None], "n": [1.5, float("nan")],
        "t": pandas.to_datetime(["2024-05-01", None]),
    })  # fmt: skip
    first, second = expand_sources(frame)
    assert first.document.metadata == {"n": 1.5, "t": "2024-05-01T00:00:00"}
    with pytest.raises(EmptyDocument):
        second.load()


def test_polars_frames():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    (document,) = documents(polars.DataFrame({"text": ["a"], "tags": [["x", "y"]]}))
    assert document.metadata == {"tags": ["x", "y"]}


def test_table_without_the_text_column():
    with pytest.raises(ConfigurationError, match="no column 'text'") as caught:
        list(expand_sources(pa.table({"txt": ["a"]})))
    assert "did you mean 'txt'" in caught.value.hint


@pytest.mark.parametrize("source", [5, b"bytes", None, object()])
def test_other_types_are_refused(source):
    with pytest.raises(ConfigurationError, match="can't be of type"):
        list(expand_sources(source))


class Handler(http.server.BaseHTTPRequestHandler):
    """A site of a few pages."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/docs/page?x=1")
            self.end_headers()
            return
        status, kind, body = {
            "/docs/page?x=1": (200, "text/html; charset=utf-8", b"<h1>Hi</h1><p>page</p>"),
            "/legacy": (200, "text/plain; charset=koi8-r", "Привет".encode("koi8_r")),
            "/notes.md": (200, "text/plain", b"# Notes\n\ntext"),
            "/broken": (500, "text/plain", b"oops"),
        }.get(self.path, (404, "text/plain", b"no"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def read(item: SourceItem) -> Document:
    data = item.load()
    return reader_for(item.name, item.media_type, data).read(data, uri=item.uri, name=item.name)


def test_web_pages(site):
    page, moved, legacy, notes = expand_sources(
        [f"{site}/docs/page?x=1#part", f"{site}/moved", f"{site}/legacy", f"{site}/notes.md"]
    )
    assert page.uri == f"{site}/docs/page?x=1"
    assert page.metadata == {"host": "127.0.0.1", "file_name": "page"}
    assert read(page).text == read(moved).text == "Hi\n\npage"
    assert read(legacy).text == "Привет"
    assert read(notes).blocks[0].kind == "heading"


def test_web_pages_that_fail(site):
    missing, broken, unreachable, wrong = expand_sources(
        [f"{site}/nope", f"{site}/broken", "http://127.0.0.1:9/x", "http://[::1"]
    )
    with pytest.raises(SourceNotFound, match="answered 404"):
        missing.load()
    with pytest.raises(ReaderError, match="answered 500"):
        broken.load()
    with pytest.raises(SourceNotFound, match="can't be reached"):
        unreachable.load()
    with pytest.raises(SourceNotFound, match="no valid URL"):
        wrong.load()


def test_downloads_have_a_limit(site, monkeypatch):
    monkeypatch.setattr("nbrag.ingestion.source_items._LARGEST_DOWNLOAD", 5)
    (item,) = expand_sources(f"{site}/notes.md")
    with pytest.raises(ReaderError, match="has over"):
        item.load()
