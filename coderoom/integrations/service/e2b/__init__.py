"""What E2B's official clients need: `e2b` and `e2b-code-interpreter`, for Python and JavaScript, as they are.

control.py     sandboxes: made, listed, killed, paused, measured
code.py        code, in contexts
process.py     commands
filesystem.py  files
ports.py       what listens in a sandbox
sandboxes.py   the sandboxes, and who may use one
snapshots.py   the states of which sandboxes are made
connect.py     Connect's protocol
files.py       asks what runs inside: guest.py
commands.py    a command
"""

from __future__ import annotations

from fastapi import APIRouter

from coderoom.integrations.service.boxes import Boxes
from coderoom.integrations.service.e2b.code import make_code
from coderoom.integrations.service.e2b.control import make_control
from coderoom.integrations.service.e2b.filesystem import make_files, make_filesystem
from coderoom.integrations.service.e2b.ports import make_ports
from coderoom.integrations.service.e2b.process import make_process
from coderoom.integrations.service.e2b.sandboxes import (
    AdmissionError,
    E2BSandboxes,
    is_control,
    is_for_port,
    is_inside,
    is_signed,
)
from coderoom.integrations.service.e2b.snapshots import Snapshots
from coderoom.integrations.service.tenants import Tenants

__all__ = [
    "AdmissionError",
    "E2BSandboxes",
    "Snapshots",
    "is_control",
    "is_for_port",
    "is_inside",
    "is_signed",
    "make_e2b",
]


def make_e2b(boxes: Boxes, tenants: Tenants, sandboxes: E2BSandboxes, snapshots: Snapshots) -> APIRouter:
    """The routes."""
    routes = APIRouter(include_in_schema=False)
    for each in (
        make_control(sandboxes, snapshots),
        make_code(boxes, tenants),
        make_files(),
        make_filesystem(),
        make_process(boxes, tenants),
        make_ports(),
    ):
        routes.include_router(each)
    return routes
