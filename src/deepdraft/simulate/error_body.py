"""The shapes of error bodies that servers and the proxies before them send."""

from __future__ import annotations

from deepdraft.simulate.ask import Refused
from deepdraft.simulate.dialects.answer import Answer, json_answer, text_answer
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.spec import Fault

_HTML = """<!DOCTYPE html>
<html><head><title>{status}</title></head><body><h1>{status}</h1><p>{message}</p><hr>nginx</body></html>
"""


def error_answer(fault: Fault, dialect: OpenAiDialect) -> Answer:
    """The answer of a status fault."""
    answer = _shaped(fault, dialect)
    if fault.retry_after_s is None:
        return answer
    headers = (*answer.headers, ("retry-after", str(fault.retry_after_s)))
    return Answer(answer.status, answer.content_type, answer.body, headers)


def _shaped(fault: Fault, dialect: OpenAiDialect) -> Answer:
    status, message = fault.status, fault.message
    nested = {"message": message, "type": "server_error", "param": None, "code": status}
    match fault.body:
        case "dialect":
            return json_answer(dialect.error(Refused(status, message, code=status)), status)
        case "nested":
            return json_answer({"error": nested}, status)
        case "flat":
            return json_answer({"object": "error", **nested}, status)
        case "string":
            return json_answer({"error": message}, status)
        case "bare_string":
            return json_answer(message, status)
        case "detail":
            return json_answer({"detail": message}, status)
        case "html":
            return text_answer(_HTML.format(status=status, message=message), status, "text/html")
        case "empty":
            return text_answer("", status)
