"""Keeps files that the code has written from being run in the process of the tests, once there are any.

The tests may read them. What they, or a library that they use, would import, unpickle or run as a program may be such
a file, or a copy of it. So nothing is imported from folders for temporary files any more, nor what has changed beside
the tests; no program is started, and what is unpickled makes only data.
"""

from __future__ import annotations

import os
import sys
from os import lstat, walk
from os.path import dirname, join, realpath

from .stand_ins import reference
from .texts_of_code import is_of_data, suspect_all

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any

__all__ = ["watch"]

_PROGRAMS = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "subprocess.Popen")
_LOADERS = ("_frozen_importlib", "_pytest.assertion", "importlib._bootstrap")
"""Who may load compiled code, of files that are checked. That is not `zipimport`."""
_IMMUTABLE_TYPE, _HEAP_TYPE = 1 << 8, 1 << 9  # Flags of classes.
_OWN = __name__.rpartition(".")[0]
_OF_CODE = "%s.stand_ins" % _OWN, "_unpickled"  # It makes stand-ins.


def watch(peer: Any, home: str, temporary: str) -> None:
    """Refuse from now on what may run a file of the code.

    Args:
        peer: The side of the tests.
        home: The folder that has the tests.
        temporary: The folder for temporary files.
    """
    own = {path: _mark(path) for folder, _, names in walk(home) for path in (join(folder, name) for name in names)}
    places = join(realpath(home), ""), join(realpath(temporary), "")
    # The interpreter's environment may lie below the folder for temporary files; no file of the code comes there.
    prefixes = [realpath(each) for each in (sys.prefix, sys.base_prefix)]
    environments = tuple(join(each, "") for each in prefixes if join(dirname(each), "").startswith(places[1]))

    def check_file(path: Any) -> None:
        path = realpath(os.fsdecode(path)) if type(path) in (str, bytes) else ""
        if not path.startswith(places) or path.startswith(environments):
            return
        mark = _mark(path)
        if mark is not None and own.get(path) != mark:
            raise peer.lost("the tests load a file that the code may have written: %s" % path)

    def hook(event: str, args: Any) -> None:
        if event == "open":
            if _caller().startswith(_LOADERS):
                check_file(args[0])
        elif event == "compile":
            check_file(args[1])
            if _caller() == "zipimport":
                raise peer.lost("the tests import from an archive")
        elif event == "import":
            check_file(args[1])
        elif event in ("ctypes.dlopen", "sqlite3.load_extension"):
            check_file(args[-1])
        elif event == "pickle.find_class":
            found = getattr(sys.modules.get(args[0]), args[1], None)
            is_data = reference(found) is None and is_of_data(found) and _is_fixed(found)
            if args != _OF_CODE and not is_data:
                raise peer.lost("the tests unpickle what is no data, which the code may have written")
        elif event in ("marshal.load", "marshal.loads"):
            if not _caller().startswith(_LOADERS):
                raise peer.lost("the tests load compiled code, which the code may have written")
        elif event in _PROGRAMS:
            raise peer.lost("the tests start a program, which may use files of the code")

    suspect_all()
    sys.addaudithook(hook)


def _is_fixed(value: Any) -> bool:
    """Whether what is unpickled cannot set attributes of a value: no module, and no class but those written in C."""
    if isinstance(value, type):
        return not value.__flags__ & _HEAP_TYPE or bool(value.__flags__ & _IMMUTABLE_TYPE)
    return type(value) in (bool, int, float, str, bytes)


def _caller() -> str:
    """The name of the module that does what is audited, perhaps by a guard."""
    frame: Any = sys._getframe(2)
    while frame is not None and (name := str(frame.f_globals.get("__name__"))).startswith(_OWN):
        frame = frame.f_back
    return name


def _mark(path: str) -> Any:
    try:
        status = lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
