"""What follows from the records: latencies, token counts, steps, acceptance, points. Pure functions; no clock, no
network, no files. The definitions are those of docs/concepts/figures.md."""

from deepdraft.metrics.attempt import TrialRequests, trial_requests_of
from deepdraft.metrics.concurrency import (
    intervals_s,
    makespan_s,
    mean_concurrency,
    output_tok_s,
    peak_concurrency,
    total_tok_s,
)
from deepdraft.metrics.event import (
    answer_ttft_s,
    e2el_s,
    event_times_s,
    first_byte_s,
    first_event_s,
    last_token_s,
    token_times_s,
    ttft_s,
)
from deepdraft.metrics.figure import FIGURE_KINDS, FIGURE_NAMES, STEP_PARTS, Figure, FigureKind
from deepdraft.metrics.point import Percentile, Point, RefusedPair, points_of, request_acceptance
from deepdraft.metrics.prompt import cached_tokens, prompt_tokens, uncached_prompt_tokens
from deepdraft.metrics.sample import Sample
from deepdraft.metrics.server import server_decode_tok_s, server_prefill_s, server_prefill_tok_s
from deepdraft.metrics.speculation import (
    Sourced,
    acceptance_len,
    acceptance_rate_by_depth,
    request_tokens_per_step,
    step_s,
    tokens_per_step,
)
from deepdraft.metrics.step import Steps, steps_of, why_no_steps
from deepdraft.metrics.step_parts import step_parts_s
from deepdraft.metrics.timing import (
    decode_tok_s,
    e2el_from_scheduled_s,
    itl_s,
    itls_s,
    num_decode_tokens,
    peak_tok_s,
    send_lag_s,
    tpot_bounds_s,
    tpot_s,
    ttft_from_scheduled_s,
)
from deepdraft.metrics.tokens import EventTokens, event_tokens, output_tokens
from deepdraft.metrics.two_point import Pair, pairs_of, refusal, two_point_tpot_s, two_point_ttft_s

__all__ = [
    "FIGURE_KINDS",
    "FIGURE_NAMES",
    "STEP_PARTS",
    "EventTokens",
    "Figure",
    "FigureKind",
    "Pair",
    "Percentile",
    "Point",
    "RefusedPair",
    "Sample",
    "Sourced",
    "Steps",
    "TrialRequests",
    "acceptance_len",
    "acceptance_rate_by_depth",
    "answer_ttft_s",
    "cached_tokens",
    "decode_tok_s",
    "e2el_from_scheduled_s",
    "e2el_s",
    "event_times_s",
    "event_tokens",
    "first_byte_s",
    "first_event_s",
    "intervals_s",
    "itl_s",
    "itls_s",
    "last_token_s",
    "makespan_s",
    "mean_concurrency",
    "num_decode_tokens",
    "output_tok_s",
    "output_tokens",
    "pairs_of",
    "peak_concurrency",
    "peak_tok_s",
    "points_of",
    "prompt_tokens",
    "refusal",
    "request_acceptance",
    "request_tokens_per_step",
    "send_lag_s",
    "server_decode_tok_s",
    "server_prefill_s",
    "server_prefill_tok_s",
    "step_parts_s",
    "step_s",
    "steps_of",
    "token_times_s",
    "tokens_per_step",
    "total_tok_s",
    "tpot_bounds_s",
    "tpot_s",
    "trial_requests_of",
    "ttft_from_scheduled_s",
    "ttft_s",
    "two_point_tpot_s",
    "two_point_ttft_s",
    "uncached_prompt_tokens",
    "why_no_steps",
]
