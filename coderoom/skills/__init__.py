"""Skills: functions that code of models has written, saved with tests that it has passed, for later runs.

    async with Skills("skills") as skills, sandbox.session(functions=await skills.functions()) as session:
        await session.run("from skills import parse_rows")

Used by `CodeActAgent(skills=...)`, the MCP server, `execute_code` and the command `skills`. Knows no AutoGen.
"""

from __future__ import annotations

from coderoom.skills.folder import Skill, SkillFolder
from coderoom.skills.inlined import Inlined, inline, skills_for
from coderoom.skills.judging import UnsoundError
from coderoom.skills.skills import Skills

__all__ = ["Inlined", "Skill", "SkillFolder", "Skills", "UnsoundError", "inline", "skills_for"]
