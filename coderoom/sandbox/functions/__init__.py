"""Functions of the host that code in a session may call.

`function` says what one is, `callables` and `schemas` make them for a session. `calls` answers the calls of one cell;
`recorder` replays cells without calling anything.
`coderoom.sandbox.guest.functions` is the other side.
"""

from __future__ import annotations

from coderoom.sandbox.functions.callables import (
    LateFunctions,
    Offer,
    Offered,
    check_functions,
    from_callable,
    host_functions,
    misfit,
    read_signature,
)
from coderoom.sandbox.functions.calls import Calls, calls_of
from coderoom.sandbox.functions.function import Arguments, HostFunction
from coderoom.sandbox.functions.recorder import CallRecorder, RecordedCall
from coderoom.sandbox.functions.schemas import Signed, bind, sign, tool_name

__all__ = [
    "Arguments",
    "CallRecorder",
    "Calls",
    "HostFunction",
    "LateFunctions",
    "Offer",
    "Offered",
    "RecordedCall",
    "Signed",
    "bind",
    "calls_of",
    "check_functions",
    "from_callable",
    "host_functions",
    "misfit",
    "read_signature",
    "sign",
    "tool_name",
]
