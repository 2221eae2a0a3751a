"""Detect the type of a file that is attached to a prompt."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["TEXT", "MediaKind", "MediaType", "accepted", "text_problem", "type_by_name", "type_in"]

MediaKind = Literal["image", "video", "audio", "document", "text"]


class MediaType(msgspec.Struct, frozen=True):
    """A type of file that the CLI sends to a model.

    `endings` are the file name endings of this type. Our copy of a file gets the first of them.
    """

    name: str
    kind: MediaKind
    endings: tuple[str, ...]


# The CLI detects the type of a file only by its ending (fileUtils.ts with `mime/lite`). It does not
# send AVI, FLV, WMV, MKV and M4A. It sends further types (TIFF, AVIF, MIDI), but no model accepts
# them.
_PNG = MediaType("PNG image", "image", (".png",))
_JPEG = MediaType("JPEG image", "image", (".jpg", ".jpeg", ".jpe"))
_GIF = MediaType("GIF image", "image", (".gif",))
_WEBP = MediaType("WebP image", "image", (".webp",))
_BMP = MediaType("BMP image", "image", (".bmp",))
_HEIC = MediaType("HEIC image", "image", (".heic",))
_HEIF = MediaType("HEIF image", "image", (".heif",))
_MP4 = MediaType("MP4 video", "video", (".mp4", ".m4v"))
_MOV = MediaType("QuickTime video", "video", (".mov", ".qt"))
_3GP = MediaType("3GPP video", "video", (".3gp", ".3gpp"))
_WEBM = MediaType("WebM video", "video", (".webm",))
_MPEG = MediaType("MPEG video", "video", (".mpg", ".mpeg"))
_MP3 = MediaType("MP3 audio", "audio", (".mp3",))
_WAV = MediaType("WAV audio", "audio", (".wav",))
_OGG = MediaType("Ogg audio", "audio", (".ogg", ".oga", ".opus"))
_AAC = MediaType("AAC audio", "audio", (".aac",))
_PDF = MediaType("PDF document", "document", (".pdf",))
# Our copies of text files always end in .txt, because the CLI treats .dat, .obj and .bin files as
# binary.
TEXT = MediaType("text", "text", (".txt",))

_ALL = (
    _PNG,
    _JPEG,
    _GIF,
    _WEBP,
    _BMP,
    _HEIC,
    _HEIF,
    _MP4,
    _MOV,
    _3GP,
    _WEBM,
    _MPEG,
    _MP3,
    _WAV,
    _OGG,
    _AAC,
    _PDF,
)
_BY_ENDING = {ending: kind for kind in _ALL for ending in kind.endings}
_BEGINNINGS: tuple[tuple[bytes, MediaType], ...] = (
    (b"\x89PNG\r\n\x1a\n", _PNG),
    (b"\xff\xd8\xff", _JPEG),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"%PDF-", _PDF),
    (b"\x1aE\xdf\xa3", _WEBM),
    (b"\x00\x00\x01\xba", _MPEG),
    (b"\x00\x00\x01\xb3", _MPEG),
    (b"OggS", _OGG),
    (b"ID3", _MP3),
)
_RIFF = {b"WEBP": _WEBP, b"WAVE": _WAV}
# Brands of the ISO container: they identify its format.
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")
_HEIF_BRANDS = (b"mif1", b"msf1")
_OTHER_BRANDS = (b"avif", b"avis", b"M4A ", b"M4B ", b"jp2 ", b"crx ")
_UTF_16_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


def type_by_name(name: str) -> MediaType | None:
    """Return the type that the ending of a file's name indicates, or None if it is unknown.

    >>> type_by_name("Cat.JPEG").name
    'JPEG image'
    """
    dot = name.rfind(".")
    return _BY_ENDING.get(name[dot:].lower()) if dot >= 0 else None


def type_in(data: bytes, name: str = "") -> MediaType | None:
    """Detect the type of a file by its contents. Return None if files of this type cannot be sent.

    `name` is the name of the file. Its ending decides if two types start with the same bytes.

    >>> type_in(b"hello").name
    'text'
    """
    detected = _by_beginning(data)
    expected = type_by_name(name)
    if detected in (_HEIC, _HEIF) and expected in (_HEIC, _HEIF):
        return expected  # both types use the same brands
    if detected is _WEBM and expected is not _WEBM and b"webm" not in data[:64]:
        return None  # Matroska starts with the same bytes, and no model accepts it
    return detected or (TEXT if text_problem(data) is None else None)


def _by_beginning(data: bytes) -> MediaType | None:
    for beginning, media_type in _BEGINNINGS:
        if data.startswith(beginning):
            return media_type
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[:2] == b"BM" and len(data) >= 26 and data[6:10] == b"\0\0\0\0":
        return _BMP
    if data[4:8] in (b"moov", b"wide", b"mdat", b"free") and data[:1] == b"\0":
        return _MOV
    if data[4:8] == b"ftyp":
        return _by_brand(data[8:12])
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0:
        return _frames(data[1])
    return None


def _by_brand(brand: bytes) -> MediaType | None:
    if brand in _HEIC_BRANDS:
        return _HEIC
    if brand in _HEIF_BRANDS:
        return _HEIF
    if brand in _OTHER_BRANDS:
        return None
    if brand == b"qt  ":
        return _MOV
    return _3GP if brand[:3] in (b"3gp", b"3ge", b"3gg") else _MP4


def _frames(second: int) -> MediaType | None:
    """Return the type of a file that starts like a stream of audio frames: AAC or MP3.

    `second` is the second byte of the file. Two of its bits are 0 only for AAC. Return None if this
    byte shows that the file is UTF-16 text.
    """
    if second == 0xFE:
        return None  # the byte order mark of UTF-16
    return _AAC if second & 0x06 == 0 else _MP3


def text_problem(data: bytes) -> str | None:
    """Return why the CLI would not read these bytes as text; None if it would read them as text.

    >>> text_problem("Grüße".encode()), text_problem("Grüße".encode("latin-1"))
    (None, 'is not UTF-8 (byte 3)')
    """
    if data.startswith(_UTF_16_32):
        return None
    if b"\0" in data:
        return "contains NUL bytes"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start + 1})"
    # The CLI treats a file as binary if more than a tenth of the first 512 bytes are control
    # characters.
    beginning = data[:512]
    controls = sum(byte < 7 or 14 < byte < 32 for byte in beginning)
    if controls * 10 > len(beginning) or not text.strip():
        return "contains control characters and no text" if text.strip() else "contains only whitespace"
    return None


def accepted(kind: MediaKind | None) -> str:
    """Return a list of the file types that can be sent, as text for a message.

    Only types of this `kind` are listed; None means all kinds.
    """
    endings = [media.endings[0].lstrip(".") for media in _ALL if kind in (None, media.kind)]
    return ", ".join(endings)
