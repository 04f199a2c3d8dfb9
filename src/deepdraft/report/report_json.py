"""The one object of `deepdraft report --format json`: every run as `deepdraft show --json` gives it, and what was
handed in beside them. Keys are the field names of the views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from deepdraft.report.json import results_object
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views

REPORT_SCHEMA_VERSION = 1


def report_object(subjects: Sequence[Subject], views: Views) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None."""
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "runs": [{"name": subject.name, **results_object(subject.run)} for subject in subjects],
        **msgspec.to_builtins(views),
    }
