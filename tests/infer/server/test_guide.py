"""docs/guides/serve.md: its Python example runs as it stands, and its curl bodies are taken."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "serve.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def test_the_python_example_runs(reciter) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert ADDRESS in example
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example.replace(ADDRESS, reciter.url), "serve.md", "exec"), {})
    text, counts = out.getvalue().rstrip().rsplit("\n", 1)
    assert text.startswith("Schöne")
    assert re.fullmatch(r"64 tokens, \d+ cached", counts)


def test_the_curl_examples_are_taken(reciter) -> None:
    examples = re.findall(rf"curl -s {ADDRESS}(\S+)(?: -d '(.*)')?", GUIDE)
    assert len(examples) == 3
    for path, body in examples:
        reply = reciter.post(path, json.loads(body)) if body else reciter.get(path)
        assert reply.status == 200
