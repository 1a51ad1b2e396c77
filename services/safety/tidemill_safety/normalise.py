"""One spelling for text that looks alike, so that rules and classifier see through cheap disguises.

Steps: Unicode NFKC (UAX 15), removal of invisible characters, folding of look-alike letters (a light selection of the
confusables of UTS 39), lower case, runs of white space to one blank or one newline. Each is linear in the text's length.
"""

from __future__ import annotations

import re
import unicodedata

_LOOK_ALIKES = {
    "a": "аАαΑɑ", "b": "ВвΒ", "c": "сС", "d": "ԁ", "e": "еЕεΕ", "g": "ɡ", "h": "һНнΗ", "i": "іІιΙı", "j": "јЈ", "k": "кКκΚ",
    "l": "ӏƖ", "m": "мМΜ", "n": "Ν", "o": "оОοΟ", "p": "рРρΡ", "q": "ԛ", "s": "ѕЅ", "t": "тТτΤ", "v": "ν", "w": "ԝ",
    "x": "хХΧ", "y": "уУΥ", "z": "Ζ", "'": "‘’‛", '"': "“”‟", "-": "‐‑‒–—―−", "/": "⁄∕", "|": "∣ǀ", " ": "\u1680",
    "\n": "\u2028\u2029",
}  # fmt: skip
_INVISIBLE = (
    *(0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFE00, 0xFE10),
    *range(0xE0000, 0xE0080),
)
_FOLD: dict[int, str | None] = {
    **{ord(char): plain for plain, chars in _LOOK_ALIKES.items() for char in chars},
    **dict.fromkeys(_INVISIBLE),
}
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]+")
_BLANKS = re.compile(r"[ \t\f\v\x1c-\x1f]+")
_NEWLINES = re.compile(r" ?[\r\n][ \r\n]*")
_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/bfnrt]))")
_JSON_LIST = re.compile(r"\"[ \t]{0,8},[ \t]{0,8}\"")
_JSON_CONTROL = {"b": "", "f": " ", "n": "\n", "r": "\n", "t": " "}
_SHELL_QUOTING = re.compile(r"\\\n|[\"'\\]")


def normalise(text: str) -> str:
    """The one spelling of ``text``. A lone surrogate becomes U+FFFD."""
    if not text.isascii():
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", whole).translate(_FOLD))
    return _NEWLINES.sub("\n", _BLANKS.sub(" ", _CONTROLS.sub("", text.lower())))


def normalise_command(text: str) -> str:
    """``normalise`` for the arguments of a tool call, JSON or plain, whole or cut anywhere.

    JSON escapes are resolved, the strings of a list (an argv) stand side by side, and what a shell drops (quotes, backslashes,
    escaped newlines) is dropped: ``["r\\\\m", "-rf", "/"]`` reads ``[rm -rf /]``.
    """
    plain = _JSON_ESCAPE.sub(_unescape, _JSON_LIST.sub(" ", text))
    return normalise(_SHELL_QUOTING.sub("", plain))


def _unescape(match: re.Match[str]) -> str:
    code, char = match.groups()
    return chr(int(code, 16)) if code else _JSON_CONTROL.get(char, char)
