"""double: It crashes the interpreter."""

import ctypes


def double(n):
    ctypes.string_at(0)
