"""What the processes of tests and code have in common beside the values that they hand over.

With each text, the process of the tests tells how its environment, its arguments, the levels of its loggers, what its
standard output says of itself and the standard library have changed, and what it has changed in lists, dicts and sets
that objects of the code keep. That of the code tells its warnings, its log records and changes of its environment, and
how those containers are now. All of it is data.
"""

from __future__ import annotations

import os
import sys
import warnings

from coderoom.sandbox.guest.decoding import as_text

from .crossing import become
from .patching import Patches, make_patches

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, List

__all__ = ["Sharing"]

_OWN_PREFIXES = ("LD_", "PYTEST_")
_OWN_VARIABLES = frozenset(
    "PYTHON" + name
    for name in (
        "ASYNCIODEBUG", "BREAKPOINT", "CASEOK", "COERCECLOCALE", "DEBUG", "DEVMODE", "DONTWRITEBYTECODE",
        "DUMPREFS", "DUMPREFSFILE", "EXECUTABLE", "FAULTHANDLER", "HASHSEED", "HOME", "INSPECT",
        "INTMAXSTRDIGITS", "IOENCODING", "LEGACYWINDOWSFSENCODING", "LEGACYWINDOWSSTDIO", "MALLOC",
        "MALLOCSTATS", "NODEBUGRANGES", "NOUSERSITE", "OPTIMIZE", "PATH", "PERFSUPPORT", "PLATLIBDIR",
        "PROFILEIMPORTTIME", "PYCACHEPREFIX", "SAFEPATH", "STARTUP", "THREADDEBUG", "TRACEMALLOC",
        "UNBUFFERED", "USERBASE", "UTF8", "VERBOSE", "WARNDEFAULTENCODING", "WARNINGS", "_BASIC_REPL",
        "_COLORS", "_CONTEXT_AWARE_WARNINGS", "_CPU_COUNT", "_DISABLE_REMOTE_DEBUG", "_FROZEN_MODULES",
        "_GIL", "_HISTORY", "_JIT", "_PERF_JIT_SUPPORT", "_PRESITE", "_THREAD_INHERIT_CONTEXT", "_TLBC"
    )
)  # fmt: skip
"""Those of the interpreter. They and those with such a prefix change how programs run: each side has its own."""
_OF_OUTPUT = ("isatty", "fileno")  # What tests patch of the standard output, so that it looks like a terminal.
_MOST = 20_000  # Larger containers are copies: each text would have to look whether they have changed.
_MOST_CONTAINERS = 100
_HELD = 3  # References to a container that nothing but the following code has.


class Sharing:
    """One of the two sides.

    Args:
        is_code: Whether it is that of the code.
        content: Makes data of a value or of what a container contains.
        decode: Makes a value of data.
        text: Makes a text of what a container contains, to compare it.
    """

    def __init__(
        self,
        is_code: bool,
        content: Callable[[Any], Any],
        decode: Callable[[Any], Any],
        text: Callable[[Any], str],
    ) -> None:
        self._is_code = is_code
        self._content = content
        self._decode = decode
        self._text = text
        self._environment = _environment()
        self._variables: Any = None  # What `os.environ` had the last time, as it keeps it.
        self._argv = sys.argv[:]
        self._output: Dict[str, Any] = {}
        self._levels: Dict[str, int] = {}
        self._containers: Dict[int, List[Any]] = {}  # By number: a container, and the text of what it contained.
        self.patches: Any = None if is_code else Patches()
        self._patched: Dict[Any, Any] = {}
        self._warned: List[Any] = []
        self._logged: List[Any] = []
        if is_code:
            warnings.simplefilter("always")  # The filters of the tests decide.
            warnings.showwarning = self._on_warning  # type: ignore[assignment]

    def keep(self, number: int, container: Any) -> bool:
        """Keep a container the same as the one with this number of the other side, if there is not too much of them."""
        text = self._text(container)
        is_kept = not self._is_code or (len(text) <= _MOST and len(self._containers) < _MOST_CONTAINERS)
        if is_kept:
            self._containers[number] = [container, text]
        return is_kept

    def find(self, number: int) -> Any:
        """The container with this number; `None` if it is not kept."""
        return self._containers.get(number, [None])[0]

    def known(self) -> Dict[int, Any]:
        """The data of containers that both sides have, by their ids."""
        return {id(each[0]): {"$shared": number} for number, each in self._containers.items()}

    def forget(self, number: int) -> None:
        """Forget the container with this number."""
        self._containers.pop(number, None)

    def gone(self) -> List[int]:
        """The numbers of containers that are not used any more, which are forgotten."""
        gone = [number for number, each in self._containers.items() if sys.getrefcount(each[0]) < _HELD]
        for number in gone:
            del self._containers[number]
        return gone

    def gather(self) -> Dict[str, Any]:
        """What the other side has to know."""
        found: Dict[str, Any] = {}
        changed = []
        for number, each in self._containers.items():
            text = self._text(each[0])
            if text != each[1]:
                each[1] = text
                changed.append([number, self._content(each[0])])
        if changed:
            found["changed"] = changed
        if self._is_code:
            if self._warned:
                found["warned"] = self._warned[:]
            if self._logged:
                found["logged"] = self._logged[:]
            del self._warned[:], self._logged[:]
        kept = getattr(os.environ, "_data", None)  # To decode all of it for each text would take long.
        is_same = type(kept) is dict and kept == self._variables
        now = self._environment if is_same else _environment()
        self._variables = dict(kept) if type(kept) is dict else None
        if now != self._environment:
            names = {*now, *self._environment}
            found["environment"] = [
                [each, now.get(each)] for each in names if now.get(each) != self._environment.get(each)
            ]
            self._environment = now
        if self._is_code:
            return found
        patched = [[place, [*map(self._content, value)]] for place, value in self.patches.changed()]
        if patched:
            found["patched"] = patched
        if sys.argv != self._argv:
            self._argv = found["argv"] = [*map(str, sys.argv)]
        output = {name: each for name, each in getattr(sys.stdout, "__dict__", {}).items() if name in _OF_OUTPUT}
        if output != self._output:
            self._output = output
            found["output"] = {name: self._content(each) for name, each in output.items()}
        logging: Any = sys.modules.get("logging")
        if logging is not None:
            loggers = {"": logging.root, **logging.root.manager.loggerDict}
            levels = {name: getattr(each, "level", 0) for name, each in loggers.items()}
            if levels != self._levels:
                found["levels"] = [
                    [each, level] for each, level in levels.items() if level != self._levels.get(each, 0)
                ]
                self._levels = levels
        return found

    def take(self, told: Dict[str, Any]) -> None:
        """Take over what the other side has gathered."""
        for number, content in told.get("changed", ()):
            new, each = self._decode(content), self._containers.get(number)
            if each is not None:
                become(each[0], new)
                each[1] = self._text(each[0])
        for name, value in told.get("environment", ()):
            if _is_shared(name):
                for variables in (os.environ, self._environment):
                    variables.pop(name, None) if value is None else variables.update({name: as_text(value)})
        if self._is_code:
            sys.argv[:] = told.get("argv", sys.argv)
            self._set_levels(told.get("levels", ()))
            make_patches(told.get("patched", ()), self._decode, self._patched)
            if "output" in told:  # It was encoded after them.
                for name in _OF_OUTPUT:
                    vars(sys.stdout).pop(name, None)
                vars(sys.stdout).update({name: self._decode(each) for name, each in told["output"].items()})
            return
        for each in told.get("logged", ()):
            name, level, path, line, text, function, error = each
            names = as_text(name), int(level), as_text(path), int(line), as_text(text), as_text(function)
            self._log(*names, self._decode(error))
        for message, path, line in told.get("warned", ()):
            found = self._decode(message)
            if isinstance(found, Warning):
                warnings.warn_explicit(found, None, as_text(path), int(line))

    def _on_warning(self, message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        self._warned.append([self._content(message), filename, lineno])

    def _set_levels(self, levels: Any) -> None:
        if not levels:
            return
        import logging

        if not self._levels:
            handler: Any = logging.Handler()
            handler.emit = self._on_record
            logging.root.addHandler(handler)
        self._levels.update(levels)
        for name, level in levels:
            logging.getLogger(name or None).setLevel(level)

    def _on_record(self, record: Any) -> None:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        found = [record.name, record.levelno, record.pathname, record.lineno, text, record.funcName]
        self._logged.append([*found, self._content(error)])

    def _log(self, name: str, level: int, path: str, line: int, text: str, function: str, error: Any) -> None:
        import logging

        logger = logging.getLogger(name)
        if logger.isEnabledFor(level):
            about: Any = (type(error), error, None) if isinstance(error, BaseException) else None
            logger.handle(logger.makeRecord(name, level, path, line, text, (), about, function))


def _is_shared(name: str) -> bool:
    return name not in _OWN_VARIABLES and not name.startswith(_OWN_PREFIXES)


def _environment() -> Dict[str, str]:
    return {name: each for name, each in os.environ.items() if _is_shared(name)}
