"""Numbers as people write them: `185k` tokens, `0.46 s`. Parsing and printing only; nothing is measured here.

`k` and `M` are decimal (1k = 1,000), as context lengths are usually spoken of; `Ki` and `Mi` are binary.
"""

from __future__ import annotations

import re

from deepdraft.errors import UsageError

_COUNT = re.compile(r"^(\d+(?:\.\d+)?)(k|ki|m|mi)?$", re.IGNORECASE)
_FACTOR = {"": 1, "k": 1_000, "ki": 1_024, "m": 1_000_000, "mi": 1_048_576}


def token_count(text: str) -> int:
    """Read `1400`, `1.4k`, `128k`, `32Ki`, `1M` as a number of tokens.

    Raises UsageError when the text is not a positive whole number of tokens.
    """
    match = _COUNT.match(text.strip().replace("_", ""))
    if not match:
        raise UsageError(
            f"not a number of tokens: {text!r}",
            hint="write 1400, 1.4k, 128k (1k = 1,000) or 32Ki (1Ki = 1,024)",
        )
    value = round(float(match[1]) * _FACTOR[(match[2] or "").lower()], 3)  # 4.1 x 1e6 is not quite whole in binary
    if value < 1 or value != int(value):
        raise UsageError(f"not a whole, positive number of tokens: {text!r}")
    return int(value)


def token_counts(text: str) -> tuple[int, ...]:
    """Read a list of context lengths: `1k,11k,32k`, and ranges `1k-128k*2` (times 2) or `8k-32k+8k` (plus 8k).

    The end of a range is included when a step lands on it. Order and repetition are kept as written,
    except that a length named twice is taken once.
    Raises UsageError for an empty list, a range without a step, or one that does not grow.
    """
    lens: list[int] = []
    for part in (piece.strip() for piece in text.split(",")):
        if not part:
            continue
        lens.extend(_range(part) if "-" in part else [token_count(part)])
    if not lens:
        raise UsageError("no context length given", hint="for example --context-len 1k,16k,128k")
    return tuple(dict.fromkeys(lens))


def _range(part: str) -> list[int]:
    low_text, _, rest = part.partition("-")
    operator = "*" if "*" in rest else "+" if "+" in rest else ""
    if not operator:
        raise UsageError(f"a range needs a step: {part!r}", hint="write 1k-128k*2 (times 2) or 8k-32k+8k (plus 8k)")
    high_text, _, step_text = rest.partition(operator)
    low, high = token_count(low_text), token_count(high_text)
    if high < low:
        raise UsageError(f"the range {part!r} ends below its start")
    lens = []
    value = float(low)
    if operator == "*":
        try:
            factor = float(step_text)
        except ValueError:
            factor = 0.0
        if factor <= 1:
            raise UsageError(f"the factor in {part!r} must be above 1")
        while round(value) <= high:
            lens.append(round(value))
            value *= factor
    else:
        step = token_count(step_text)
        while value <= high:
            lens.append(int(value))
            value += step
    return lens


def tokens_text(num_tokens: float) -> str:
    """Print a token count in at most five characters: 982, 1.4k, 11k, 185k, 1.2M."""
    if num_tokens < 1_000:
        return f"{num_tokens:.0f}"
    if num_tokens < 9_950:
        return f"{num_tokens / 1e3:.1f}k"
    if num_tokens < 999_500:
        return f"{num_tokens / 1e3:.0f}k"
    return f"{num_tokens / 1e6:.1f}M"


def seconds_text(seconds: float) -> str:
    """Print a duration with three significant digits: 84 ms, 4.31 s, 3.1 min, 1.2 h."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"
