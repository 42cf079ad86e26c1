"""Pictures that code has made, in terminals and on the desktop."""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from PIL import Image

from coderoom._util.pictures import Protocol, inline, picture_type, protocol_of
from coderoom.errors import RequestError
from coderoom.runs.pictures import open_pictures, opener
from tests.support.commands import coderoom
from tests.support.terminals import in_terminal

CODE = """\
```python
from pathlib import Path
import base64
Path("plot.png").write_bytes(base64.b64decode("{data}"))
Path("fake.png").write_text("\\x1b]0;owned\\x07")
Path("plot.desktop").write_bytes(Path("plot.png").read_bytes())
Path("link.png").symlink_to("/etc/passwd")
```
"""
PLAIN = {"CI": "", "TMUX": "", "STY": "", "TERM_PROGRAM": "", "KITTY_WINDOW_ID": "", "LC_TERMINAL": ""}


def picture(kind: str = "PNG", size: tuple[int, int] = (9, 7)) -> bytes:
    """A picture with a red and a blue half."""
    image = Image.new("RGB", size, "red")
    image.paste("blue", (0, 0, size[0] // 3, size[1]))
    image.save(made := io.BytesIO(), kind, **({"lossless": True} if kind == "WEBP" else {}))
    return made.getvalue()


def text_of(path: Path) -> str:
    """The text of a file that another process writes at once."""
    while not path.exists():
        time.sleep(0.01)
    return path.read_text()


@pytest.fixture
def terminal() -> Iterator[IO[str]]:
    ours, theirs = pty.openpty()
    with open(theirs, "w") as stream:  # noqa: PTH123
        yield stream
    os.close(ours)


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-256color", "TMUX": "/tmp/x", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "xterm-kitty", "CI": "true"}, None),
        ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-kitty", "CODEROOM_PICTURES": "off"}, None),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x", "CODEROOM_PICTURES": "sixel"}, "sixel"),
    ],
)
def test_terminals_by_their_environment(terminal: IO[str], env: dict[str, str], found: str | None) -> None:
    assert protocol_of(terminal, env) == found
    assert protocol_of(io.StringIO(), env) is None


def test_kitty_and_iterm_get_the_file_and_nothing_else(terminal: IO[str]) -> None:
    data = picture(size=(300, 200)) + b"\x1b]0;owned\x07" * 1_000  # What comes after a picture is not looked at.
    shown = inline(data, "kitty", terminal)
    chunks = re.findall(r"\x1b_G([\w=,]*);([\w+/=]*)\x1b\\", shown)
    assert "".join(f"\x1b_G{head};{chunk}\x1b\\" for head, chunk in chunks) == shown
    assert base64.b64decode("".join(chunk for _, chunk in chunks)) == data
    assert [head for head, _ in chunks] == ["a=T,f=100,q=2,m=1", *["m=1"] * (len(chunks) - 2), "m=0"]
    shown = inline(data, "iterm", terminal)
    sent = shown.removeprefix(f"\x1b]1337;File=inline=1;size={len(data)};preserveAspectRatio=1:").removesuffix("\x07")
    assert re.fullmatch(r"[\w+/=]*", sent)
    assert base64.b64decode(sent) == data
    assert "c=80" in inline(picture(size=(5_000, 2)), "kitty", terminal)
    # Others become PNG.
    assert inline(picture("JPEG"), "kitty", terminal).startswith("\x1b_Ga=T,f=100,q=2,m=0;iVBORw0KGgo")


@pytest.mark.parametrize("protocol", ["kitty", "iterm", "sixel"])
@pytest.mark.parametrize(
    "data",
    [
        b"<svg/>",
        b"\x89PNG\r\n\x1a\n" + b"\x1b]0;owned\x07" * 9,
        b"GIF89a",
        picture()[:16] + b"\x00\x01\x00\x00" * 2 + picture()[24:],  # 65,536 pixels wide and high.
    ],
)
def test_what_is_no_picture_is_not_shown(terminal: IO[str], protocol: Protocol, data: bytes) -> None:
    assert inline(data, protocol, terminal) == ""


def pixels_of(sixel: str) -> list[list[int]]:
    """The numbers of the colours of a sixel picture."""
    width, height = map(int, re.findall(r"1;1;(\d+);(\d+)", sixel)[0])
    found = [[-1] * width for _ in range(height)]
    body = re.sub(r"^.*?(?=#0;2)|#\d+;2;\d+;\d+;\d+|\x1b\\$", "", sixel)
    for band, line in enumerate(body.split("-")):
        for colour, text in re.findall(r"#(\d+)([^#$]*)\$", line):
            long = re.sub(r"!(\d+)(.)", lambda run: run[2] * int(run[1]), text)
            for column, char in enumerate(long):
                for bit in range(6):
                    if ord(char) - 63 >> bit & 1:
                        found[6 * band + bit][column] = int(colour)
    return found


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP"])
def test_sixel_has_every_pixel(terminal: IO[str], kind: str) -> None:
    shown = inline(picture(kind, (30, 8)), "sixel", terminal)
    rows = pixels_of(shown)
    assert len(rows) == 8
    (row,) = {tuple(row) for row in rows}  # Each is the same.
    assert (len(set(row[:10])), len(set(row[10:])), row[0] == row[29]) == (1, 1, False)
    colours = dict(re.findall(r"#(\d+);2;(\d+;\d+;\d+)", shown))
    assert (colours[str(row[0])], colours[str(row[29])]) == ("0;0;100", "100;0;0")


@pytest.mark.slow
def test_a_terminal_is_asked_for_sixel(tmp_path: Path) -> None:
    asks = (
        "import fcntl, sys, termios; from coderoom._util.pictures import protocol_of\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); print('is', protocol_of(sys.stdout))"
    )
    env = {**PLAIN, "TERM": "xterm-256color"}
    answers = {"\x1b[c": "\x1b[?62;4;22c"}
    assert "is sixel" in in_terminal([sys.executable, "-c", asks], tmp_path, env, answers)[1]
    answers = {"\x1b[c": "\x1b[?64;1;2c"}
    assert "is None" in in_terminal([sys.executable, "-c", asks], tmp_path, env, answers)[1]


@pytest.mark.slow
def test_exec_shows_only_pictures_and_opens_them(tmp_path: Path) -> None:
    (tmp_path / "plot.md").write_text(CODE.format(data=base64.b64encode(picture()).decode()))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "xdg-open"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/opened\n')
    program.chmod(0o755)
    env = {**PLAIN, "TERM": "xterm-kitty", "DISPLAY": ":0", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "coderoom", "exec", "plot.md", "--open"]
    code, shown = in_terminal(command, tmp_path, env)
    assert code == 0
    assert shown.count("\x1b_G") == 1
    assert f";{(tmp_path / 'fake.png').as_uri()}\x1b\\" in shown  # A link.
    assert "\x1b]0;owned" not in shown
    assert text_of(tmp_path / "opened") == f"{tmp_path / 'plot.png'}\n"


def test_open_needs_a_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RequestError, match="there is no desktop here"):
        opener()
    (tmp_path / "made.md").write_text("```python\nopen('ran', 'w')\n```\n")
    done = coderoom("exec", "made.md", "--open", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "ran").exists()) == (2, False)  # It is said before anything runs.


def test_a_file_is_a_picture_by_name_and_content(tmp_path: Path) -> None:
    (tmp_path / "a.desktop").write_bytes(picture())
    (tmp_path / "b.gif").write_bytes(picture())
    (tmp_path / "c.PNG").write_bytes(picture())
    open_pictures(
        sorted(tmp_path.iterdir()),
        ["/bin/sh", "-c", f"echo $0 > {tmp_path}/opened.part; mv {tmp_path}/opened.part {tmp_path}/opened"],
    )
    assert text_of(tmp_path / "opened") == f"{tmp_path}/c.PNG\n"
    assert picture_type(picture("WEBP")) == "image/webp"
