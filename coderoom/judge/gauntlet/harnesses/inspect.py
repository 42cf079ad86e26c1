"""inspect-ai: As the scorer of its HumanEval does: `python -c` runs code and test, and ends with 0."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, scorer
from inspect_ai.solver import solver
from inspect_ai.util import sandbox


def passes(code, test, name, timeout):
    command = [sys.executable, "-c", f"{code}\n{test}\ncheck({name})\n"]

    @scorer(metrics=[accuracy()])
    def verify():
        async def score(state, target):
            try:
                done = await sandbox().exec(command, timeout=int(timeout))
            except TimeoutError:
                return Score(value=INCORRECT)
            return Score(value=CORRECT if done.success else INCORRECT)

        return score

    @solver
    def answered():
        async def solve(state, generate):
            return state

        return solve

    task = Task(dataset=[Sample(input=name)], solver=answered(), scorer=verify(), sandbox="local")
    log = eval(task, model="mockllm/model", display="none", log_dir="logs")[0]
    return bool([each.value for each in log.samples[0].scores.values()] == [CORRECT])
