"""The layout of the worker's memory, on which the cost of each fork depends. Used by the worker.

A fork copies an entry for each mapping and for each page that is not a file's, and its end drops them again. With
numpy and pandas that is half of the cost of a run. So there are few mappings here, and large pages. What the kernel or
the interpreter does not support is left as it is.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

_LARGE = 2 * 1024 * 1024
_MADV_COLLAPSE = 25  # Since Linux 6.1.
_READ, _WRITE, _EXECUTE = 1, 2, 4

_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


class _Mapping(NamedTuple):
    begin: int
    end: int
    rights: str
    offset: int
    file: str
    resident: int  # In bytes.


def settle() -> None:
    """Merge the mappings of libraries, and use large pages."""
    if _libc is None:
        return
    protect, advise = _libc.mprotect, _libc.madvise
    protect.argtypes = advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        mappings = _mappings()
    except OSError:  # There is no `/proc`.
        return
    for one, following in zip(mappings, [*mappings[1:], None]):  # noqa: B905 (Python 3.8)
        size = one.end - one.begin
        if one.file.startswith("/") and one.rights == "r--p" and following is not None:
            # Two neighbors with the same rights become one mapping. What a library has relocated joins its data, and
            # its constants join its code; nothing gets both rights.
            is_relocated = following == following._replace(begin=one.end, file=one.file, offset=one.offset + size)
            is_data = is_relocated and following.rights == "rw-p"
            protect(one.begin, size, _READ | (_WRITE if is_data else _EXECUTE))
        elif one.file in ("", "[heap]") and one.rights == "rw-p" and one.resident > size * 3 // 4:
            begin, end = -(-one.begin // _LARGE) * _LARGE, one.end // _LARGE * _LARGE
            if begin < end:
                advise(begin, end - begin, _MADV_COLLAPSE)


def _mappings() -> list[_Mapping]:
    found: list[Any] = []
    with open("/proc/self/smaps") as file:
        for line in file:
            words = line.split(None, 5)
            if words[0] == "Rss:":
                found[-1][-1] = int(words[1]) * 1024
            elif not words[0].endswith(":"):
                begin, _, end = words[0].partition("-")
                name = words[5].strip() if len(words) > 5 else ""
                found.append([int(begin, 16), int(end, 16), words[1], int(words[2], 16), name, 0])
    return [_Mapping(*each) for each in found]
