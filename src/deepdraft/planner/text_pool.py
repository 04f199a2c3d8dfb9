"""The pool at other fractions by two measured pools alone, as plain text: what can be said without a model."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from deepdraft.planner.calibrate import fraction_for, predicted_line, predicted_pool
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.flag import FRACTION, engine_of, flag_name
from deepdraft.planner.text import wrapped


def pools_text(
    calibration: Calibration, fractions: Sequence[float], target_tokens: int | None = None, margin_frac: float = 0.0
) -> str:
    """A row a fraction; and from which fraction on so many tokens, and a share more, fit, where that is asked."""
    engine = engine_of(calibration.settings)
    flag = flag_name(engine, FRACTION[engine])
    _, slope = predicted_line(calibration)
    lines = [
        wrapped(f"By {calibration.source}: {slope / 100:,.0f} tokens for each 0.01 of {flag}."),
        "",
        f"{'fraction':>10}  {'KV pool':>9}",
    ]
    lines += [f"{each:>10.4g}  {predicted_pool(calibration, each):>9,}" for each in fractions]
    if target_tokens is not None:
        needed = fraction_for(calibration, ceil(target_tokens * (1 + margin_frac)))
        spare = f" and {100 * margin_frac:g} % to spare" if margin_frac else ""
        where = f"from {flag} {needed:.3f} on" if needed < 1 else "at no fraction below 1"
        answer = f"{target_tokens:,} tokens{spare} fit {where}."
        lines += ["", wrapped(answer)]
    lines += [
        "",
        wrapped(
            "Whether a long prefill holds there can't be said without the model: name it, and its device, for the "
            "reserve and the spike."
        ),
    ]
    return "\n".join(lines) + "\n"


def pools_object(
    calibration: Calibration, fractions: Sequence[float], target_tokens: int | None = None, margin_frac: float = 0.0
) -> dict[str, object]:
    """The same as a JSON object; `kv_pool_tokens` is that of the first fraction."""
    _, slope = predicted_line(calibration)
    found: dict[str, object] = {
        "kv_pool_tokens": predicted_pool(calibration, fractions[0]),
        "tokens_per_frac": slope,
        "pools": [{"fraction": each, "kv_pool_tokens": predicted_pool(calibration, each)} for each in fractions],
    }
    if target_tokens is not None:
        needed = fraction_for(calibration, ceil(target_tokens * (1 + margin_frac)))
        found["fraction_for_target"] = round(needed, 4)
    return found
