"""Texts that are safe to show and to keep: on a terminal, in Markdown and in encodings, shortened, and without secrets.

Long outputs are shortened for the author of the code, and kept whole in files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

from coderoom._util.files import open_folder, write_inside

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST_MISFITS: Final = 1_000
# Characters that a terminal does not show although Python counts them as printable, or knows nothing of them.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
# Of those that Python does not count as printable: spaces, private ones, and those that are newer than this Python.
_SHOWN: Final = frozenset({"Zs", "Co", "Cn"})

# Names in which Markdown changes nothing.
_PLAIN_NAME = re.compile(r"[^\W_](?:[ ._/-]?[^\W_])*")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")

_JOINS = "\u00ad\u034f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060\ufe00-\ufe0f\U000e0100-\U000e01ef"
# What emoji and scripts such as Persian and those of India are written with: one or two after a character of theirs.
# More could hide a text. A mark of direction alone moves no letters; the signs are shown; braille draws with its blank.
_WRITTEN = re.compile(
    f"(?<=[^\x00-\x7f{_JOINS}])[{_JOINS}]{{1,2}}|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    "|(?<=\U0001f3f4)[\U000e0061-\U000e007a]{3,6}\U000e007f"
    "|(?<![\u061c\u200e\u200f])[\u061c\u200e\u200f](?![\u061c\u200e\u200f])|(?<=[a-z])\u00ad(?=[a-z])"
    "|[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u2800\U000110bd\U000110cd]"
)


def named(name: str) -> str:
    """A name in Markdown that shows every character."""
    return name if _PLAIN_NAME.fullmatch(name) else code_span(name)


def code_span(text: str) -> str:
    """A short text as a Markdown code span: one line, no invisible characters."""
    shown = visible(text, exact=True).replace("\n", "\u240a").replace("\t", "\u2409")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def without_escapes(text: str) -> str:
    """The text without terminal escape sequences."""
    return _ESCAPES.sub("", text)


def visible(text: str, *, exact: bool = False) -> str:
    """The text with control and invisible characters replaced by visible symbols.

    Of the invisible ones, those that emoji and many languages are written with stay, unless every character counts, as
    in code that waits for approval.
    """
    text = text.replace("\r\n", "\n")
    if text.isascii() and all(line.isprintable() for line in re.split("[\n\t]", text)):
        return text
    kept = set() if exact else {place for found in _WRITTEN.finditer(text) for place in range(*found.span())}
    return "".join(char if at in kept or _is_plain(char, exact) else _picture(char) for at, char in enumerate(text))


def _is_plain(char: str, exact: bool) -> bool:
    if _INVISIBLE.match(char):
        return False
    return char.isprintable() or char in "\n\t" or (not exact and unicodedata.category(char) in _SHOWN)


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things in words, for instance "1,000 tests"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def in_dollars(cost: float) -> str:
    """A price in US dollars."""
    return "less than $0.0001" if 0 < cost < 0.0001 else f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"


def misfits(error: ValidationError) -> str:
    """What does not fit a model of pydantic, in words."""
    if (count := error.error_count()) > _MOST_MISFITS:  # To list them takes long.
        return f"{count:,} fields or values do not fit"
    found = []
    for each in error.errors(include_url=False)[:3]:
        place, why = ".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            why = "there is no such field"
        found.append(f"{place}: {why}" if place else why)
    return "; ".join(found)


def in_texts(data: Any, change: Callable[[str], str]) -> Any:
    """A copy of JSON-like data, in which all texts and keys are changed."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        return {change(key) if isinstance(key, str) else key: in_texts(value, change) for key, value in data.items()}
    return [in_texts(each, change) for each in data] if isinstance(data, list | tuple) else data


def dump_json(data: Any, *, sort_keys: bool = False) -> str:
    """`json.dumps` with long texts written piece by piece, so that other threads go on meanwhile."""
    longer: list[str] = []
    mark = token_hex(16)  # Which is not in any of the texts.

    def without(data: Any) -> Any:
        if isinstance(data, str) and len(data) > _PIECE:
            longer.append(data)
            return f"{mark}{len(longer) - 1}."
        if isinstance(data, Mapping):
            return {key: without(value) for key, value in data.items()}
        return [without(each) for each in data] if isinstance(data, list | tuple) else data

    parts: list[str] = json.dumps(without(data), sort_keys=sort_keys).split(mark)
    for place, part in enumerate(parts[1:], start=1):
        number, _, rest = part.partition(".")
        text = longer[int(number)]
        parts[place] = "".join(json.dumps(text[at : at + _PIECE])[1:-1] for at in range(0, len(text), _PIECE)) + rest
    return "".join(parts)


def encodable(text: str) -> str:
    """The text without lone surrogates, which JSON can contain but no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        parts, begin = [], 0
        while begin < len(text):  # Piece by piece, so that other threads go on meanwhile.
            end = begin + _PIECE
            end -= "\ud800" <= text[end - 1 : end] < "\udc00"  # Two halves that make a character stay together.
            parts.append(text[begin:end].encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
            begin = end
        return "".join(parts)
    return text


_MOST_OUTPUTS = 20
OUTPUTS: Final = ".coderoom"
"""The folder in that of the code for what was too long for a model. It is no work of the code."""
_LEAST = 200


def bound_output(
    text: str, limit: int, *, whole: Path | None = None, total: int | None = None, partly: bool = False
) -> str:
    """Shorten a text to `limit` characters, at least 200, with a notice in place of its middle.

    The notice names the file with the `whole` text, which may be more than `text`: `total` characters. If the file too
    has only the beginning and the end (`partly`), the notice says so. A long path may make the result a little longer.
    """
    if limit < _LEAST:
        raise ValueError(f"limit={limit!r} is too small: at least {_LEAST} characters are needed")
    if len(text) <= limit:
        return text
    full = max(len(text), total or 0)
    # The notice for the whole text is at least as long as the final one.
    room = max(limit - len(_notice(full, full, whole, partly)) - 1, limit // 2)
    # At the end of a line, if one is near.
    size = room * 6 // 10
    end = text.rfind("\n", size - size // 4, size)
    head = text[: end + 1] if end >= 0 else text[:size]
    begin = len(text) - (room - size)
    start = text.find("\n", begin, begin + (room - size) // 4)
    tail = text[start + 1 :] if start >= 0 else text[begin:]
    gap = "" if head.endswith("\n") else "\n"
    return head + gap + _notice(full - len(head) - len(tail), full, whole, partly) + tail


def save_output(text: str, folder: Path) -> Path:
    """Save a whole output to a file in `.coderoom` of a folder, in which code can read it; the newest are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    # The code may have created links there.
    data = text.encode("utf-8", "replace")
    path = write_inside(folder, output_name(data), data)
    with contextlib.suppress(OSError), open_folder(path.parent) as outputs:
        names = [name for name in os.listdir(outputs) if name.startswith("output-")]  # noqa: PTH208 (a descriptor)
        names.sort(key=lambda name: os.stat(name, dir_fd=outputs, follow_symlinks=False).st_mtime_ns)
        for name in names[:-_MOST_OUTPUTS]:
            os.unlink(name, dir_fd=outputs)
    return path


def output_name(data: bytes, kind: str = "output") -> str:
    """The path of a saved text, named after its content, so that the notice of equal outputs is equal too."""
    return f"{OUTPUTS}/{kind}-{sha256(data).hexdigest()[:12]}.txt"


def with_line(output: str, text: str) -> str:
    """Return the output with a line of text added."""
    gap = "" if not output or output.endswith("\n") else "\n"
    return f"{output}{gap}{text}\n"


def _notice(left_out: int, total: int, whole: Path | None, partly: bool) -> str:
    what = "more of its beginning and its end" if partly else "the whole output"
    where = f"; {what} is in {whole}" if whole is not None else ""
    return f"[... {left_out:,} of {total:,} characters left out{where} ...]\n"


T = TypeVar("T")

MASK: Final = "**********"
"""What AutoGen and pydantic write instead of a secret."""
_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|PAT|CREDENTIALS?|AUTH|AUTHORIZATION|COOKIE)(?:_|$)",
    re.IGNORECASE,
)
SHORTEST_SECRET: Final = 6
"""Shorter values are too often ordinary words."""
_KEYS: Final = {
    **dict.fromkeys(("sk-", "glpat-", "pypi-"), r"[\w-]{16,}+"),
    **dict.fromkeys(("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"\w{16,}+"),
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "gsk_", "xai-", "hf_"), r"\w{20,}+"),
    **dict.fromkeys(("dop_v1_", "AGE-SECRET-KEY-1"), r"\w{20,}+"),
    **dict.fromkeys(("AKIA", "ASIA"), "[0-9A-Z]{16}"),
    **dict.fromkeys(("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "xapp-"), r"[\w-]{10,}+"),
    "AIza": r"[\w-]{30,}+",
    "npm_": r"\w{30,}+",
    "ya29.": r"[\w-]{20,}+",
    "SG.": r"[\w-]{16,}+\.[\w-]{16,}+",
    # The next one may begin in the middle of one.
    **dict.fromkeys(("eyJ", "eyK"), r"(?=[\w-]{10})(?:\w++|-(?!ey[JK]))++\.[\w-]{10,}+\.[\w-]{10,}+"),
}
"""What the keys of services begin with, and what follows.

A text of untrusted code must not take more than linear time: no repetition is tried again in a shorter form.
"""
_BEARER: Final = "Bearer "
_TOKEN: Final = r"([\w.~+/-]{16,}+=*+)"
_IN_ADDRESS: Final = r"://([^\s/:@\"']{0,100}+:[^\s/:@\"']{1,200}+)(?=@)"
# Not possessive, in which early releases of Python 3.11 have a defect; what is between has no five dashes anyway.
_IN_FILE: Final = (
    r"-----BEGIN (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----(?:[^-]|-(?!----)){1,16384}"
    r"-----END (?:[A-Z]{1,20} ){0,4}PRIVATE KEY-----"
)
_TRACES: Final = (*_KEYS, _BEARER, "://", "-----BEGIN ", "${")
"""Text without any of these has nothing that looks like a key or a reference, which is seen much faster."""
_REFERENCE: Final = re.compile(r"\$(?<!\$\$)\$*+\{\w++\}")
_PIECE: Final = 32_768
_LONGEST_KEY: Final = 8_192
_FILE: Final = "-----BEGIN "
_LONGEST_FILE: Final = 17_000
"""The longest private key in the form of a file."""
MOST_LOOKED_AT: Final = 8 << 20
"""Characters with traces of secrets that one `hide` looks at, which takes a second if they are hostile."""
NOT_LOOKED_AT: Final = "[not looked at for secrets, and left out: "
"""What a text begins with that stands in place of another one."""


def is_secret_name(name: str) -> bool:
    """Whether the value of a variable with this name must not be shown."""
    return bool(_SECRET_NAME.search(name))


def _at_a_word(length: int) -> str:
    """A pattern of what stands before the beginning of a key, of this length: no part of a word.

    In JSON inside of a text, a line break before it is a letter, and so is the end of a colour.
    """
    before = r"(?<=\\[nrtbf]{0})", r"(?<=\[\dm{0})", r"(?<=\[\d\dm{0})", "(?<=%[0-9A-Fa-f]{{2}}{0})"
    return "|".join(("(?:(?<![A-Za-z0-9_]{0})", *before)).format("." * length) + ")"


def _not_looked_at(text: str) -> str:
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{NOT_LOOKED_AT}{len(text):,} characters, SHA-256 {digest}]"


class Masking:
    """Replaces secrets in texts: at first, the values of variables of the environment whose names tell of secrets."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}
        found = {value: f"${{{name}}}" for name, value in os.environ.items() if is_secret_name(name)}
        self.hide_values({value: name for value, name in found.items() if not Path(value).exists()})  # As PWD.

    def hide_values(self, secrets: Mapping[str, str]) -> None:
        """Have these values, of 6 characters or more, replaced from now on."""
        for value, instead in secrets.items():
            if len(value) >= SHORTEST_SECRET:
                self._secrets |= {value: instead, json.dumps(value)[1:-1]: instead}
        known = sorted(self._secrets, key=len, reverse=True)
        self._longest = max(_LONGEST_KEY, len(known[0]) if known else 0)
        self._traces = (*_TRACES, *known)
        values = list(map(re.escape, known))
        keys = [re.escape(begin) + _at_a_word(len(begin)) + rest for begin, rest in _KEYS.items()]
        token = f"{_BEARER}(?!{'|'.join(values)}){_TOKEN}" if values else f"{_BEARER}{_TOKEN}"
        # Each alternative begins with a character of its own, so that most of a text is skipped at once.
        self._secret = re.compile("|".join([*values, *keys, token, _IN_ADDRESS, _IN_FILE, _REFERENCE.pattern]))

    def hide(self, data: T, *, restorable: bool = False) -> T:
        """Replace secret values, and what looks like a key, in a text or in all texts of JSON-like data.

        If it is `restorable`, a `${NAME}` that was there before gets one more `$`, so that `restore` leaves it alone.
        Of more than `MOST_LOOKED_AT` characters with traces of secrets, the rest is left out: `NOT_LOOKED_AT`.
        """
        room = MOST_LOOKED_AT

        def instead(found: re.Match[str]) -> str:
            if found.lastindex:  # Only a part is secret.
                return found[0].removesuffix(secret := found[found.lastindex]) + self._secrets.get(secret, MASK)
            more = f"${found[0]}" if restorable else found[0]
            return self._secrets.get(found[0], more if _REFERENCE.fullmatch(found[0]) else MASK)

        def replaced(text: str) -> str:
            nonlocal room
            parts: list[str] = []
            begin = 0
            for end, stop, is_traced in self._pieces(text):
                if begin >= end:  # A secret went past this piece.
                    continue
                piece: list[str] = []
                if is_traced:
                    room -= end - begin
                    if room < 0:  # The end of a secret that begins here has no traces.
                        return "".join([*parts, _not_looked_at(text[begin:])])
                    for found in self._secret.finditer(text, begin, stop):
                        if found.start() >= end:
                            break
                        piece += [text[begin : found.start()], instead(found)]
                        begin = found.end()
                if begin < end:
                    piece.append(text[begin:end])
                    begin = end
                parts.append("".join(piece))
            return "".join(parts)

        hidden: T = in_texts(data, replaced)
        return hidden

    def looked_at(self, text: str) -> int:
        """How many characters `hide` would have to look at, since they have traces of secrets."""
        return sum((end - 1) % _PIECE + 1 for end, _, is_traced in self._pieces(text) if is_traced)

    def _pieces(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Pieces of a text: the end of each, that of what is read for it, and whether this has traces of secrets.

        Other threads go on between two of them.
        """
        for begin in range(0, len(text), _PIECE):
            end = min(begin + _PIECE, len(text))
            stop = end + max(self._longest, _LONGEST_FILE if text.find(_FILE, begin, end + len(_FILE)) >= 0 else 0)
            yield end, stop, any(text.find(trace, begin, stop) >= 0 for trace in self._traces)

    def dump(self, data: Any, *, restorable: bool = False, sort_keys: bool = False) -> str:
        """The JSON of data after `hide`, which is seldom needed: most data has nothing to hide."""
        text = dump_json(data, sort_keys=sort_keys)
        # JSON writes some characters by their number; such a one may be a part of a secret, or stand before it.
        if not any(trace in text for trace in (*self._traces, "\\u")):
            return text
        return dump_json(self.hide(data, restorable=restorable), sort_keys=sort_keys)

    def restore(self, data: T, *, values: bool = True) -> T:
        """Undo what `hide` did to restorable data; without `values`, only to each `${NAME}` that was there before."""
        known = {instead: value for value, instead in reversed(self._secrets.items())} if values else {}  # Not as JSON.

        def before(found: re.Match[str]) -> str:
            return found[0][1:] if found[0].startswith("$$") else known.get(found[0], found[0])

        restored: T = in_texts(data, lambda text: _REFERENCE.sub(before, text))
        return restored
