"""Pictures that code has made: what a file is by its content, and how a terminal shows it between its lines.

A terminal gets nothing of an untrusted file but the base64 of a picture that was looked at, or its pixels.
"""

from __future__ import annotations

import base64
import fcntl
import functools
import io
import math
import os
import re
import select
import struct
import sys
import termios
import time
import tty
from collections.abc import Mapping
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Final, Literal, cast, get_args

if TYPE_CHECKING:
    from PIL.Image import Image

Protocol = Literal["kitty", "iterm", "sixel"]

VARIABLE: Final = "CODEROOM_PICTURES"
"""Overrides what is found out about the terminal: one of the protocols, or `off`."""
HEAD_BYTES: Final = 32
"""How many bytes of a file say which picture it is."""
_BEGINNINGS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}
_MOST_PIXELS: Final = 40_000_000
_WIDEST: Final = 1_000
_CHUNK: Final = 4_096
_CELL_PIXELS: Final = 8
_ANSWER_SECONDS: Final = 0.2
_ATTRIBUTES: Final = re.compile(rb"\x1b\[\?([\d;]*)c")
_SIXEL: Final = b"4"


def picture_type(head: bytes) -> str | None:
    """The media type of a picture, by its first bytes; `None` if it is not PNG, JPEG, GIF or WebP."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, begins in _BEGINNINGS.items() if head.startswith(begins)), None)


def protocol_of(stream: IO[str], env: Mapping[str, str] = os.environ) -> Protocol | None:
    """How the terminal of a stream shows pictures; `None` if it does not, or it is not a terminal.

    Whether it knows sixel is asked once: it may take a fifth of a second.
    """
    given, term, program = env.get(VARIABLE, ""), env.get("TERM", ""), env.get("TERM_PROGRAM", "")
    if not stream.isatty() or given == "off":
        return None
    if given in get_args(Protocol):
        return cast(Protocol, given)
    # tmux and screen draw all of the terminal themselves.
    if (
        term in ("", "dumb")
        or env.get("CI")
        or env.get("TMUX")
        or env.get("STY")
        or term.startswith(("tmux", "screen"))
    ):
        return None
    if term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty" or (env.get("KITTY_WINDOW_ID") and not program):
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty", "rio") or env.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return "sixel" if find_spec("PIL") is not None and _knows_sixel(stream.fileno()) else None


@functools.cache
def _knows_sixel(terminal: int) -> bool:
    """What the terminal says of itself when it is asked for its attributes."""
    if not sys.stdin.isatty():
        return False
    keys, answer = sys.stdin.fileno(), b""
    try:  # A process in the background does not ask, and nothing that was typed before is lost.
        if os.tcgetpgrp(keys) != os.getpgrp() or select.select([keys], [], [], 0)[0]:
            return False
    except OSError:  # It is a terminal of others.
        return False
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys, termios.TCSANOW)
        os.write(terminal, b"\x1b[c")
        end = time.monotonic() + _ANSWER_SECONDS
        while not _ATTRIBUTES.search(answer) and select.select([keys], [], [], max(0.0, end - time.monotonic()))[0]:
            answer += os.read(keys, 64)
    finally:
        termios.tcsetattr(keys, termios.TCSANOW, before)
    found = _ATTRIBUTES.search(answer)
    return found is not None and _SIXEL in found[1].split(b";")[1:]


def inline(data: bytes, protocol: Protocol, stream: IO[str]) -> str:
    """What shows a picture in a terminal; empty if it is not one, is too large, or Pillow is needed and is missing."""
    kind, (columns, width) = picture_type(data), _size_of(stream)
    if kind == "image/png" and protocol != "sixel":
        size = struct.unpack(">II", data[16:24]) if data[12:16] == b"IHDR" and len(data) > 24 else (0, 0)
        wide = columns if size[0] > width else 0
        return _framed(data, protocol, wide) if 0 < math.prod(size) <= _MOST_PIXELS else ""
    if kind is None or find_spec("PIL") is None:
        return ""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG", "JPEG", "GIF", "WEBP"]) as opened:
            if math.prod(opened.size) > _MOST_PIXELS:
                return ""
            opened.thumbnail((min(width, _WIDEST),) * 2)
            seen = Image.new("RGBA", opened.size, "white")
            seen.alpha_composite(opened.convert("RGBA"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # All that Pillow raises for such files.
        return ""
    if protocol == "sixel":
        return _sixel(seen.convert("RGB"))
    seen.save(made := io.BytesIO(), "PNG")
    return _framed(made.getvalue(), protocol)


def _size_of(stream: IO[str]) -> tuple[int, int]:
    """How many columns and pixels the terminal is wide, or as many as it may have."""
    try:
        _, columns, pixels, _ = struct.unpack("HHHH", fcntl.ioctl(stream.fileno(), termios.TIOCGWINSZ, b"\0" * 8))
    except OSError:
        columns = pixels = 0
    return columns or 80, pixels or (columns or 80) * _CELL_PIXELS


def _framed(data: bytes, protocol: Protocol, columns: int = 0) -> str:
    """A PNG in an escape sequence of the terminal, scaled to so many columns if that is not 0."""
    text = base64.b64encode(data).decode()
    if protocol == "iterm":
        width = f"width={columns};" if columns else ""
        return f"\x1b]1337;File=inline=1;size={len(data)};{width}preserveAspectRatio=1:{text}\x07"
    # Quiet: its answers would be read as keys.
    head, wide = "a=T,f=100,q=2,", f"c={columns}," if columns else ""
    chunks = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
    parts = [f"\x1b_Gm={int(at < len(chunks))};{chunk}\x1b\\" for at, chunk in enumerate(chunks, 1)]
    return "".join(parts).replace("\x1b_G", f"\x1b_G{head}{wide}", 1)


@functools.cache
def _bit(colour: int, place: int) -> bytes:
    """The table that makes a bit of a colour, and nothing of others."""
    return bytes(1 << place if each == colour else 0 for each in range(256))


def _sixel(image: Image) -> str:
    """A picture as bands of six rows, each with a line for every colour in it."""
    image = image.quantize(256)
    (width, height), data = image.size, image.tobytes()
    palette = image.getpalette() or []
    parts = [f'\x1bP0;1q"1;1;{width};{height}']
    for number in range(len(palette) // 3):
        red, green, blue = (round(each * 100 / 255) for each in palette[3 * number : 3 * number + 3])
        parts.append(f"#{number};2;{red};{green};{blue}")
    for top in range(0, height, 6):
        rows = [data[row * width : (row + 1) * width] for row in range(top, min(top + 6, height))]
        for colour in sorted(set(b"".join(rows))):
            bits = 0
            for place, row in enumerate(rows):
                bits |= int.from_bytes(row.translate(_bit(colour, place)))
            line = bits.to_bytes(width).translate(_CHARACTERS).decode().rstrip("?")
            parts.append(f"#{colour}{_REPEATED.sub(lambda found: f'!{len(found[0])}{found[1]}', line)}$")
        parts.append("-")
    return f"{''.join(parts)}\x1b\\"


_CHARACTERS: Final = bytes((each + 63) % 256 for each in range(256))
_REPEATED: Final = re.compile(r"(.)\1{3,}")
