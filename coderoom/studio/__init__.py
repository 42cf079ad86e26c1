"""AutoGen Studio with CodeRoom's teams: its environment, its server, and its contents.

Studio requires an older AutoGen than CodeRoom, so it never runs in CodeRoom's environment. `run_studio` creates an
environment once (`prepare_environment`), starts Studio's server there on 127.0.0.1, puts CodeRoom's teams into it, and
ends it with this process.
"""

from __future__ import annotations

import coderoom._util.full  # noqa: F401
from coderoom.studio.environment import prepare_environment
from coderoom.studio.start import RunningStudio, run_studio

__all__ = ["RunningStudio", "prepare_environment", "run_studio"]
