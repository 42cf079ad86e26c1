"""Functions of the host that code in a session may call.

`_function` says what one is, `_callables` and `_tools` make them from what a user has, and `_offer` collects them for a
session. `_calls` answers the calls of one cell; `_recorder` lets cells be run again without calling anything.
`coderoom.sandbox.guest.functions` is the other side.
"""

from __future__ import annotations

from coderoom.sandbox.functions.calls import Calls, calls_of
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.functions.offer import Offer, Offered, check_functions, host_functions
from coderoom.sandbox.functions.recorder import CallRecorder, RecordedCall

__all__ = [
    "CallRecorder",
    "Calls",
    "HostFunction",
    "Offer",
    "Offered",
    "RecordedCall",
    "calls_of",
    "check_functions",
    "host_functions",
]
