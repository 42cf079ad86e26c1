"""An evaluation of Inspect AI whose tools run in CodeRoom's sandbox, without Docker.

It needs `pip install 'coderoom[inspect]' openai` and a key:

    inspect eval examples/integrations/inspect_task.py --model openai/gpt-5-mini

"""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python


@task
def lines() -> Task:
    """Two small questions about files."""
    return Task(
        dataset=[
            Sample("How many lines has /workspace/poem.txt?", target="3", files={"poem.txt": "one\ntwo\nthree\n"}),
            Sample("What is the sum of numbers.txt?", target="60", files={"numbers.txt": "10\n20\n30\n"}),
        ],
        solver=[use_tools(bash(timeout=30), python(timeout=30)), generate()],
        scorer=includes(),
        sandbox="coderoom",
    )
