"""group: It makes its dict by merging many, with print and a temporary file on the way."""

import json
import os
import tempfile


def group(words):
    with tempfile.TemporaryDirectory() as folder:
        for number, word in enumerate(words):
            with open(os.path.join(folder, f"{number:04}"), "w") as file:
                json.dump([len(word), word], file)
        found = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name)) as file:
                size, word = json.load(file)
            print("PASSED", name)
            found = {**found, size: [*found.get(size, ()), word]}
    return found
