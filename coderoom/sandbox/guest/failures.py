"""The traceback of an exception that a cell raised, and remarks on its cause."""

from __future__ import annotations

import builtins
import errno
import os
import sys
import traceback
import types
from collections import deque
from typing import Any

_OURS = os.path.dirname(__file__) + os.sep
_PACKAGE: Any = sys.modules[str(__package__)]  # Where it is behind the wall, it says later.
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = ("/site-packages/", "/dist-packages/")

_LONGEST = 100_000
_MOST_FRAMES = 500  # At either end.
_MOST_FRAMES_LINKED = 20
_MOST_LINKED = 30
_LONGEST_NAME, _MOST_NAMES = 40, 1_000
_LINKS = ("__traceback__", "__cause__", "__context__", "__suppress_context__")
_HEAD = "Traceback (most recent call last):\n"
_GAP = " frames left out]"

# Names under which code imports packages that have another name.
_IMPORTED_AS = {
    "Crypto": "pycryptodome",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "pptx": "python-pptx",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "usb": "pyusb",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}


def is_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there was no memory."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def remark_on(error: BaseException, memory_bytes: int, network: bool | str) -> str:
    """The limit of the sandbox that caused an exception; empty if none is known."""
    if is_of_memory(error):
        size = memory_bytes // (1024 * 1024)
        return f"The code wanted more memory than the {size:,} MiB that it may have."
    if any(_misses_local_sockets(each) for each in _linked(error)):
        return (
            "There are no Unix sockets here: with a workspace, with readable folders or with a network, code could "
            "reach those of the host."
        )
    if any(_misses_shared_memory(each) for each in _linked(error)):
        return (
            "There is no shared memory behind this wall, which locks, queues and pools of processes need: use threads, "
            "or another wall."
        )
    if not network and any(_misses_network(each) for each in _linked(error)):
        return "There is no network here: network=True (--network) turns it on."
    if network == "listed" and any(getattr(each, "errno", None) == errno.ENETUNREACH for each in _linked(error)):
        return "Here, a host is reached by its name, or through the proxy that HTTP_PROXY names (also SOCKS 5)."
    refused = [each for each in _linked(error) if isinstance(each, ConnectionRefusedError)]
    if network == "listed" and any("'127.64." in str(each) for each in refused):
        return (
            "Without the proxy that HTTP_PROXY names (aiohttp: trust_env=True), a host is reached at the ports 80 and "
            "443, and at those that `network` names."
        )
    return ""


def advice_on(error: BaseException) -> str:
    """What installs the package whose module is missing; empty if it is something else that is missing."""
    name = getattr(error, "name", None)
    if type(error) is not ModuleNotFoundError or type(name) is not str or str(error) != f"No module named {name!r}":
        return ""
    package = package_of(name)
    is_there = not package or name.partition(".")[0] in sys.modules
    return "" if is_there else f"packages=[{package!r}] (--package {package}) installs it."


def package_of(module: str) -> str:
    """The package that has a module; empty if none can have it."""
    top = module.partition(".")[0]
    if top in getattr(sys, "stdlib_module_names", ()) or not top.isidentifier() or top.startswith("_"):
        return ""
    return _IMPORTED_AS.get(top, top.replace("_", "-"))


def _misses_local_sockets(error: BaseException) -> bool:
    """Whether an error comes of the rule that no Unix socket may be made."""
    if not isinstance(error, PermissionError) or error.__traceback__ is None:
        return False
    import socket

    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    if last.f_locals.get("family") != socket.AF_UNIX:
        return False
    try:
        socket.socket(socket.AF_UNIX).close()
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _misses_shared_memory(error: BaseException) -> bool:
    """Whether an error comes of a wall that keeps code from `/dev/shm`."""
    if not isinstance(error, PermissionError) or error.__traceback__ is None:
        return False
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    module = last.f_globals.get("__name__")
    of_module = module in ("multiprocessing.synchronize", "multiprocessing.shared_memory")
    return of_module or str(error.filename).startswith("/dev/shm/")


def explain(error: BaseException) -> tuple[str, int | None]:
    """The traceback of the author's code, and the line of the cell.

    Frames of libraries are left out, and in a very long traceback those in the middle.
    """
    linked = _linked(error)
    as_it_was = [[getattr(each, name) for name in _LINKS] for each in linked]
    left_out: dict[int, int] = {}
    try:
        for each in linked:
            most = _MOST_FRAMES if each is error else _MOST_FRAMES_LINKED
            each.__traceback__, left_out[id(each)] = _shorten(each.__traceback__, most)
            for link in ("__cause__", "__context__"):  # To exceptions that are not reported.
                if not any(getattr(each, link) is other for other in linked):
                    setattr(each, link, None)
        whole = traceback.TracebackException(type(error), error, error.__traceback__)
    finally:
        for each, facts in zip(linked, as_it_was):  # noqa: B905 (Python 3.8)
            for name, value in zip(_LINKS, facts):  # noqa: B905 (Python 3.8)
                setattr(each, name, value)
    line = next((frame.lineno for frame in whole.stack if frame.filename.startswith("<cell ")), None)
    if line is None and isinstance(error, SyntaxError):
        line = error.lineno
    _mark_gaps(whole, error, left_out)
    formatted = list(whole.format())
    parts = []
    for part, following in zip(formatted, [*formatted[1:], ""]):  # noqa: B905 (Python 3.8)
        if part == _HEAD and not following.startswith("  File "):
            continue  # A heading without frames.
        head, mark, _ = part.partition(_GAP + '", line 0')
        # A gap must not look like a file.
        parts.append(head.replace('File "', "") + _GAP + "\n" if mark else part)
    if parts and parts[-1].rstrip("\n").endswith(str(whole)):
        parts[-1] = parts[-1].rstrip("\n") + _hint(error) + "\n"
    text = "".join(parts)
    return (text if len(text) <= _LONGEST else text[: _LONGEST // 2] + "\n...\n" + text[-_LONGEST // 2 :]), line


def _hint(error: BaseException) -> str:
    """The name that is probably meant by an unknown one. Since Python 3.12, the traceback has it already."""
    name: Any = getattr(error, "name", None)
    if sys.version_info >= (3, 12) or not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return ""
    known: list[Any] = []
    try:
        if isinstance(error, NameError) and error.__traceback__ is not None:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            known = [*frame.f_locals, *frame.f_globals, *dir(builtins)]
        elif isinstance(error, AttributeError):
            known = dir(getattr(error, "obj", None))
        import difflib

        close = difflib.get_close_matches(name, [each for each in known[:_MOST_NAMES] if isinstance(each, str)], 1, 0.7)
    except Exception:  # The object may define what its attributes are.
        return ""
    return f". Did you mean: {close[0]!r}?" if close else ""


def _linked(error: BaseException) -> list[BaseException]:
    """An exception, its causes and contexts, the nearest first."""
    found = [error]
    for each in found:
        others = [each.__cause__, None if each.__suppress_context__ else each.__context__]
        group = getattr(each, "exceptions", None)
        others += group if isinstance(group, tuple) else ()
        for other in others:
            if isinstance(other, BaseException) and not any(other is seen for seen in found):
                if len(found) == _MOST_LINKED:
                    return found
                found.append(other)
    return found


def _shorten(trace: types.TracebackType | None, most: int) -> tuple[types.TracebackType | None, int]:
    """The first and the last of the author's frames, and how many between them are left out."""
    first: list[types.TracebackType] = []
    last: deque[types.TracebackType] = deque(maxlen=most)
    count = 0
    while trace is not None:
        if not is_library(trace.tb_frame.f_code.co_filename):
            count += 1
            (first if count <= most else last).append(trace)
        trace = trace.tb_next
    shown = None
    for each in reversed([*first, *last]):
        shown = types.TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno or 0)
    return shown, count - len(first) - len(last)


def is_library(filename: str) -> bool:
    """Whether a file is not the author's, but of the interpreter, of a package, or ours."""
    ours = (_OURS, *(f"{path}{os.sep}" for path in _PACKAGE.__path__))
    return filename.startswith((*ours, _LIBRARY, "<frozen ")) or any(name in filename for name in _PACKAGES)


def _mark_gaps(whole: Any, error: BaseException, left_out: dict[int, int]) -> None:
    """Insert a frame that says how many frames were left out."""
    pairs: list[tuple[Any, Any]] = [(whole, error)]
    seen = set()
    for summary, each in pairs:
        if summary is None or each is None or id(each) in seen:
            continue
        seen.add(id(each))
        count = left_out.get(id(each), 0)
        if count:
            gap = traceback.FrameSummary(f"[{count:,}{_GAP}", 0, "", lookup_line=False, line="")
            summary.stack.insert(len(summary.stack) // 2, gap)
        pairs += [(summary.__cause__, each.__cause__), (summary.__context__, each.__context__)]
        group = getattr(summary, "exceptions", None)
        pairs += list(zip(group, getattr(each, "exceptions", ()))) if group else []  # noqa: B905 (Python 3.8)


def _misses_network(error: BaseException) -> bool:
    module: Any = sys.modules.get("socket")
    if module is None or not isinstance(error, OSError):
        return False
    if isinstance(error, module.gaierror) or error.errno == errno.ENETUNREACH:
        return True
    if not isinstance(error, PermissionError) or error.__traceback__ is None:
        return False
    # The filter of system calls refuses a socket with a plain PermissionError.
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    return bool(frame.f_code.co_filename == module.__file__ and frame.f_locals.get("family") != module.AF_UNIX)
