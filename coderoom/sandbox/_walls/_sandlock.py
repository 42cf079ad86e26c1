"""The wall made by sandlock: Landlock, and a supervisor that some system calls have to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox._inside import landlock
from coderoom.sandbox._layout import Layout
from coderoom.sandbox._limits import Limits
from coderoom.sandbox._walls._base import WallReport, WallSpec
from coderoom.sandbox._walls._landlock import boot_for, reachable_layout
from coderoom.sandbox._walls._lending import borrow
from coderoom.sandbox._walls._local import LocalWorker, Start, python_arguments
from coderoom.sandbox._walls._probing import Facts, ProbedWall

__all__ = ["SandlockWall"]
