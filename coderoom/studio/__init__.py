"""AutoGen Studio with CodeRoom's teams: an environment of its own, a server, and what is put into it.

Studio asks for an older AutoGen than CodeRoom, so that it never runs in the environment that CodeRoom runs in.
`run_studio` makes one for it, once (`prepare_environment`), starts its server there on 127.0.0.1, puts CodeRoom's teams
into it, and ends it with this process.
"""

from __future__ import annotations

from coderoom.studio.environment import prepare_environment
from coderoom.studio.start import RunningStudio, run_studio

__all__ = ["RunningStudio", "prepare_environment", "run_studio"]
