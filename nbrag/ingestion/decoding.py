"""Bytes to text: byte order marks, UTF-8, UTF-16, legacy encodings, damaged and binary data."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from nbrag.errors import UnsupportedFormat

__all__ = ["DecodedText", "clean_text", "decode", "looks_binary", "normalize_newlines"]

#: Longer marks first: the UTF-32 mark begins with the UTF-16 one.
_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: Beginnings of files that are never text, though some would pass as it.
_BINARY_BEGINNINGS: tuple[bytes, ...] = (
    b"\x89PNG\r\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"%PDF-",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ",
    b"7z\xbc\xaf",
    b"\x7fELF",
    b"MZ\x90\x00",
    b"\xd0\xcf\x11\xe0",
    b"SQLite format 3\x00",
    b"OggS",
    b"ID3",
    b"PAR1",
)
_CONTROL = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f]")
_UNWANTED = re.compile("[\x00\ud800-\udfff]")
_VALID_RUN = re.compile(
    rb"(?:[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})+"
)
#: Control bytes above this share make data binary (random bytes have 10 %).
_CONTROL_SHARE = 0.02
#: Fewer bytes than this outside ASCII are too little for a guess of the encoding.
_FEW_BYTES = 8
#: How much of a file the guess of its encoding looks at.
_SAMPLE_BYTES = 65_536
#: Guesses that are left to marks and NUL bytes.
_NEVER_GUESSED = ("utf_16", "utf_32", "utf_7")
_SHIFT_JIS = ("cp932", "shift_jis", "shift_jis_2004", "shift_jisx0213")
#: Letters outside ASCII of languages in Latin script, and the Windows encoding that has them; the
#: statistics of charset-normalizer take one of these encodings for another in short texts. The
#: first of equals wins.
_ALPHABETS: tuple[tuple[str, str], ...] = (
    ("cp1252", "àâæçéèêëîïôœùûüÿ"),
    ("cp1252", "äöüß"),
    ("cp1252", "áéíóúüñç·àèòï"),
    ("cp1252", "áâãàçéêíóôõúü"),
    ("cp1252", "àèéìíîòóùú"),
    ("cp1252", "åäöæøé"),
    ("cp1252", "áðéíóúýþæö"),
    ("cp1254", "çğıöşüâîû\u0307"),
    ("cp1250", "ąćęłńóśźż"),
    ("cp1250", "áäčďéěíĺľňóôŕřšťúůýž"),
    ("cp1250", "áéíóöőúüű"),
    ("cp1250", "ăâîşţ"),
    ("cp1250", "čćđšž"),
    ("cp1257", "ąčęėįšųūž"),
    ("cp1257", "āčēģīķļņšūž"),
    ("cp1257", "äõöüšž"),
)
#: Signs outside ASCII that any language uses.
_PUNCTUATION = "\xa0\xad«»„“”‘’‚‹›–—…•·°§©®€£¿¡ªº²³½±×™"  # noqa: RUF001 - meant as they are


@dataclass(frozen=True, slots=True)
class DecodedText:
    """Text and how it was got.

    Attributes
    ----------
    text
        Without byte order mark and NUL, with line feeds as the only line breaks of their kind.
    encoding
        Python's name of the encoding.
    note
        What a person should know, e.g. that the encoding is a guess; empty when all is sure.
    """

    text: str
    encoding: str
    note: str = ""


def clean_text(text: str) -> str:
    """Return the text without NUL, and with U+FFFD in place of lone surrogates."""
    return _UNWANTED.sub(lambda match: "" if match[0] == "\x00" else "\ufffd", text)


def normalize_newlines(text: str) -> str:
    """Return the text with CRLF and lone CR as line feeds; other separators are left alone."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def looks_binary(data: bytes) -> bool:
    """Tell whether the bytes are no text in any encoding (UTF-16 has to be ruled out before)."""
    if data.startswith(_BINARY_BEGINNINGS):
        return True
    sample = data[:_SAMPLE_BYTES]
    return len(_CONTROL.findall(sample)) > _CONTROL_SHARE * len(sample)


def decode(data: bytes, *, name: str = "", declared: str = "") -> DecodedText:
    """Return the text of the bytes.

    A byte order mark decides; then UTF-8, if it fits without an error; then UTF-16, if NUL bytes
    stand on one side of each pair; then ``declared``; then damaged UTF-8, if most of it fits;
    then a guess by charset-normalizer, which short data is too little for: they are taken for
    Windows-1252.

    Parameters
    ----------
    data
        The bytes.
    name
        What to call the source in an error.
    declared
        Encoding stated by the source, such as a page's ``<meta charset>``; empty when unknown.

    Raises
    ------
    UnsupportedFormat
        When the data are binary.
    """
    text, encoding, note = _decode(data, name or "the data", declared)
    return DecodedText(clean_text(normalize_newlines(text.removeprefix("\ufeff"))), encoding, note)


def _decode(data: bytes, name: str, declared: str) -> tuple[str, str, str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            marked = _with_replacements(data[len(mark) :], encoding)
            if marked[0].count("\ufffd") > 0.1 * len(marked[0]):
                raise _binary(name)
            return marked
    if (wide := _utf16_without_mark(data)) is not None:
        return wide
    if looks_binary(data):
        raise _binary(name)
    try:
        return data.decode("utf-8"), "utf-8", ""
    except UnicodeDecodeError:
        pass
    if declared and (stated := _declared(data, declared)) is not None:
        return stated
    if _is_damaged_utf8(data):
        return _with_replacements(data, "utf-8")
    return _legacy(data)


def _binary(name: str) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"{name} is binary data, not text.",
        hint="nbrag reads text, Markdown, HTML, PDF, DOCX, notebooks, CSV, XLSX, EPUB",
    )


def _with_replacements(data: bytes, encoding: str) -> tuple[str, str, str]:
    """Decode, with U+FFFD where bytes don't fit, and a note that says how many."""
    text = data.decode(encoding, "replace")
    replaced = text.count("\ufffd") - data.decode(encoding, "ignore").count("\ufffd")
    note = f"not valid {encoding}, became U+FFFD: {replaced}" if replaced else ""
    return text, encoding, note


def _utf16_without_mark(data: bytes) -> tuple[str, str, str] | None:
    """Decode UTF-16 that has no mark, known by NUL bytes on one side of each pair only."""
    sample = data[: _SAMPLE_BYTES * 2]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    nuls = even + odd
    if not nuls or len(data) % 2 or min(even, odd) > 0.02 * nuls:
        return None
    encoding = "utf-16-be" if even > odd else "utf-16-le"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    if nuls < 0.2 * len(sample):
        # Few NULs: stray ones in plain text, or a script whose letters use both bytes.
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            letters = sum(character.isalpha() or character.isspace() for character in text)
            if letters < 0.5 * len(text):
                return None
        else:
            return None
    controls = sum(character < " " and character not in "\t\n\r\f" for character in text)
    return None if controls > _CONTROL_SHARE * len(text) else (text, encoding, "")


def _declared(data: bytes, declared: str) -> tuple[str, str, str] | None:
    """Decode as the source says, unless that name or the data are wrong."""
    try:
        codec = codecs.lookup(declared.strip()).name
        # What calls itself Latin-1 is Windows-1252 in practice (as browsers read it).
        codec = "cp1252" if codec in {"iso8859-1", "ascii"} else codec
        return data.decode(codec), codec, ""
    except (LookupError, UnicodeDecodeError, ValueError):
        return None


def _is_damaged_utf8(data: bytes) -> bool:
    """Tell whether at least half of the runs of bytes outside ASCII are valid as they stand."""
    runs = re.findall(rb"[\x80-\xff]+", data)
    valid = sum(_VALID_RUN.fullmatch(run) is not None for run in runs)
    return 2 * valid >= len(runs)


def _legacy(data: bytes) -> tuple[str, str, str]:
    """Guess among the encodings of one or two bytes a letter."""
    few = sum(byte >= 0x80 for byte in data[:_SAMPLE_BYTES]) < _FEW_BYTES
    encoding = "cp1252" if few else _guess(data)
    try:
        return data.decode(encoding), encoding, f"read as {encoding}, which is a guess"
    except UnicodeDecodeError:
        return _with_replacements(data, "utf-8" if encoding == "cp1252" else encoding)


def _guess(data: bytes) -> str:
    """Return the encoding by statistics of letters, and for Latin script by alphabets."""
    from charset_normalizer import from_bytes

    sample = data[:_SAMPLE_BYTES]
    best = from_bytes(sample, cp_exclusion=[*_NEVER_GUESSED]).best()
    if best is not None and _is_half_width(str(best)):
        best = from_bytes(sample, cp_exclusion=[*_NEVER_GUESSED, *_SHIFT_JIS]).best()
    if best is None or best.encoding.startswith(("utf", "ascii")):
        return "cp1252"
    letters = [character for character in str(best) if character > "\x7f" and character.isalpha()]
    if sum(character < "\u0250" for character in letters) <= 0.9 * len(letters):
        return str(best.encoding)
    return max(_ALPHABETS, key=lambda pair: _share_of_letters(sample, *pair))[0]


def _is_half_width(text: str) -> bool:
    """Tell whether much of the text is half-width Katakana: other scripts' bytes read as cp932."""
    return sum("\uff61" <= character <= "\uff9f" for character in text) > 0.2 * len(text)


def _share_of_letters(sample: bytes, encoding: str, alphabet: str) -> float:
    """Return how many of the characters outside ASCII belong to an alphabet, 0 to 1."""
    text = sample.decode(encoding, "replace").lower()
    beyond_ascii = [character for character in text if character > "\x7f"]
    known = frozenset(alphabet + _PUNCTUATION)
    return sum(character in known for character in beyond_ascii) / max(1, len(beyond_ascii))
