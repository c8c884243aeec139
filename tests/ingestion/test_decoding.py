"""Bytes to text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import UnsupportedFormat
from nbrag.ingestion.decoding import clean_text, decode, looks_binary, normalize_newlines

LEGACY = {
    "txt/arabic-1.txt": "cp1256",
    "txt/chinese.txt": "big5",
    "txt/french-1.txt": "cp1252",
    "txt/greek.txt": "cp1253",
    "txt/hebrew-2.txt": "cp1255",
    "txt/korean.txt": "cp949",
    "txt/russian.txt": "mac_cyrillic",
    "txt/turkish.txt": "cp1254",
    "txt/mskanji.csv": "cp932",
    "txt/english.bom.txt": "utf-8-sig",
    "gen/latin1-crlf.txt": "latin-1",
    "gen/utf16le-bom.txt": "utf-16",
    "gen/utf16be-nobom.txt": "utf-16-be",
    "gen/nul-bytes.txt": "utf-8",
    "gen/only-whitespace.txt": "utf-8",
    "gen/mixed-newlines.md": "utf-8",
    "gen/emoji-zwj-rtl.txt": "utf-8",
}

SENTENCES = {
    "polish": (
        "cp1250",
        (
            "Zażółć gęślą jaźń. Wczoraj poszedłem na rynek, gdzie kupiłem świeże "
            "jabłka i chleb. Była piękna pogoda, więc wróciłem pieszo."
        ),
    ),
    "czech": ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy. Včera jsem šel na trh."),
    "hungarian": (
        "cp1250",
        (
            "Árvíztűrő tükörfúrógép. Tegnap elmentem a piacra, ahol friss almát "
            "és kenyeret vettem. Szép idő volt, ezért gyalog jöttem haza."
        ),
    ),
    "german": (
        "cp1252",
        (
            "Gestern ging ich über die Straße und kaufte frische Äpfel für die "
            "Küche. Das Wetter war schön, natürlich."
        ),
    ),
    "spanish": (
        "cp1252",
        (
            "Ayer fui al mercado y compré manzanas. ¿Qué piensas? El niño comió "
            "después del almuerzo, según me contó mañana."
        ),
    ),
    "portuguese": (
        "cp1252",
        (
            "Ontem fui ao mercado e não comprei maçãs. O tempo estava ótimo, "
            "então voltei a pé. Você também irá à reunião amanhã?"
        ),
    ),
    "french": (
        "cp1252",
        (
            "Une phrase très courte, déjà vue à Noël où l\u2019élève a reçu ses "
            "œuvres préférées \u2014 c\u2019était l\u2019été."
        ),
    ),
    "swedish": (
        "cp1252",
        (
            "I går gick jag till marknaden och köpte färska äpplen och bröd. "
            "Vädret var vackert, så jag gick hem."
        ),
    ),
    "lithuanian": (
        "cp1257",
        (
            "Vakar nuėjau į turgų ir nusipirkau šviežių obuolių bei duonos. "
            "Oras buvo gražus, todėl grįžau pėsčiomis."
        ),
    ),
    "turkish": (
        "cp1254",
        (
            "Dün pazara gittim ve taze elma ile ekmek aldım. Hava çok güzeldi, bu "
            "yüzden eve yürüyerek döndüm. İstersen yarın akşam buluşabiliriz."
        ),
    ),
    "russian": ("cp1251", "Вчера я ходил на рынок и купил свежие яблоки. Погода была прекрасная."),
    "russian-koi8": ("koi8_r", "Вчера я ходил на рынок и купил свежие яблоки. Погода прекрасная."),
    "chinese": (
        "gbk",
        (
            "昨天我去市场买了新鲜的苹果和面包。天气很好,所以我走路回家。如果你愿意,"
            "我们可以明天晚上见面,一起吃饭聊天。"
        ),
    ),
    "japanese": (
        "cp932",
        "昨日は市場に行って新鮮なりんごとパンを買いました。天気がとても良かった。",
    ),
    "japanese-euc": (
        "euc_jp",
        "昨日は市場に行って新鮮なりんごとパンを買いました。天気が良かった。",
    ),
}


@pytest.mark.data
@pytest.mark.parametrize("name", LEGACY)
def test_files_become_the_text_of_their_encoding(data_folder, name):
    data = (data_folder / "docs" / name).read_bytes()
    expected = data.decode(LEGACY[name]).replace("\r\n", "\n").replace("\r", "\n")
    assert decode(data).text == expected.replace("\x00", "")


@pytest.mark.parametrize("language", SENTENCES)
def test_short_legacy_texts_are_told_apart_and_noted(language):
    encoding, text = SENTENCES[language]
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert "guess" in decoded.note


def test_tiny_input_is_windows_1252_and_never_cjk():
    assert decode("Café".encode("cp1252")).text == "Café"
    assert decode("\u201cnaïve\u201d".encode("cp1252")).text == "\u201cnaïve\u201d"
    assert decode(b" \xa0 \n").text == " \xa0 \n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_mark_decides_and_goes(encoding):
    assert decode("# Foo\r\n\ntext 文".encode(encoding)).text == "# Foo\n\ntext 文"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["Plain words.\nAnd more.", "日本語テキスト\nです。\n"])
def test_utf16_without_a_mark(encoding, text):
    assert decode(text.encode(encoding)).text == text


def test_stray_nul_bytes_in_text_go():
    decoded = decode("one\x00 two\x00\x00 three é".encode())
    assert (decoded.text, decoded.encoding) == ("one two three é", "utf-8")


def test_damaged_utf8_is_replaced_and_noted():
    data = "é ü ö ".encode() * 5 + b"bad \xff\xc0\xaf here" + " ñ".encode()
    decoded = decode(data)
    assert decoded.text == "é ü ö " * 5 + "bad \ufffd\ufffd\ufffd here ñ"
    assert "U+FFFD: 3" in decoded.note


def test_replacement_characters_of_the_source_are_not_counted():
    decoded = decode("é \ufffd é".encode() + b"\xff")
    assert "U+FFFD: 1" in decoded.note


def test_declared_encoding_is_used_unless_it_is_wrong():
    data = "Привет, мир".encode("koi8_r")
    assert decode(data, declared="koi8-r").text == "Привет, мир"
    assert decode("\x93quoted\x94".encode("latin-1"), declared="iso-8859-1").text == (
        "\u201cquoted\u201d"
    )
    assert decode("Grüße".encode(), declared="no-such-encoding").text == "Grüße"


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 4,
        b"\x89PNG\r\n\x1a\n" + b"\x00" * 50,
        b"PK\x03\x04rest",
        b"%PDF-1.7 rest",
        b"\xff\xfe\xfd" * 300,
        b"SQLite format 3\x00",
    ],
)
def test_binary_data_are_refused(data):
    with pytest.raises(UnsupportedFormat, match=r"thing\.bin is binary"):
        decode(data, name="thing.bin")


def test_looks_binary_tolerates_what_text_may_hold():
    assert not looks_binary(b"tabs\tand\x1b[31mcolours\x0c\r\n")


@given(st.binary(max_size=300))
def test_any_bytes_give_clean_text_or_a_refusal(data):
    try:
        text = decode(data).text
    except UnsupportedFormat:
        return
    assert "\x00" not in text
    assert "\r" not in text
    text.encode()  # no lone surrogates


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200))
def test_utf8_text_is_kept_as_it_is(text):
    assert decode(text.encode()).text == text.removeprefix("\ufeff").removeprefix("\ufeff") or (
        "\ufeff" in text
    )


def test_clean_text_and_newlines():
    assert clean_text("a\x00b\ud800c") == "ab\ufffdc"
    assert normalize_newlines("a\r\nb\rc\nd\u2028e\x0cf") == "a\nb\nc\nd\u2028e\x0cf"
