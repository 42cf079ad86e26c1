"""Functions of the host that code in a session may call.

`function` says what one is, `callables` and `schemas` make them for a session. `calls` answers the calls of one cell;
`recorder` replays cells without calling anything.
`coderoom.sandbox.guest.functions` is the other side.
"""
