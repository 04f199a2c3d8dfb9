"""The shared language: frozen records of what was asked, what the server said, and what was measured.

Stored is not derived: every field was configured or measured. What follows from it is a function in `metrics`.
`None` means "not said" and is never replaced by a zero. Every field that is a duration is in seconds.
"""

from deepdraft.records.capability import Capabilities, Ternary
from deepdraft.records.line import (
    ColdStep,
    End,
    Failure,
    Header,
    Line,
    Measurement,
    Note,
    PromptFacts,
    Refusal,
    Trial,
)
from deepdraft.records.reported import Reported, ReportedFigure, Source
from deepdraft.records.run import Run
from deepdraft.records.schema_version import SCHEMA_VERSION
from deepdraft.records.server import Acceptance, DraftDecisions, ServerReading, StepParts
from deepdraft.records.spec import Limits, SweepSpec
from deepdraft.records.trace import EventLog, RequestTrace, Usage

__all__ = [
    "SCHEMA_VERSION",
    "Acceptance",
    "Capabilities",
    "ColdStep",
    "DraftDecisions",
    "End",
    "EventLog",
    "Failure",
    "Header",
    "Limits",
    "Line",
    "Measurement",
    "Note",
    "PromptFacts",
    "Refusal",
    "Reported",
    "ReportedFigure",
    "RequestTrace",
    "Run",
    "ServerReading",
    "Source",
    "StepParts",
    "SweepSpec",
    "Ternary",
    "Trial",
    "Usage",
]
