"""Each step launches its kernels one by one instead of replaying a CUDA graph: some 4 to 8 us a kernel, tens of ms a
step for a deep model, whatever the context."""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Hypothesis, Support
from deepdraft.diagnosis.mode import has_graphs, is_eager
from deepdraft.diagnosis.words import capital


def no_cuda_graph(case: Case, growing_frac: float) -> Hypothesis:
    """`growing_frac`: the part of the decode time at the longest context that grew with the context."""
    support: Support
    if is_eager(case):
        support, why = "strong", "the settings say that steps run without CUDA graphs"
    elif has_graphs(case):
        support, why = "against", "the settings say that steps run in CUDA graphs"
    elif growing_frac > 0.7:
        support = "against"
        grew = f"{100 * growing_frac:.0f} % of the time grew with the context"
        why = f"launches cost the same at every length, and {grew}"
    else:
        support, why = "weak", "a large part of the step does not depend on the context"
    return Hypothesis(
        name="no_cuda_graph",
        support=support,
        why=why,
        prediction="A constant on every step, flat in the context; the slope does not change with graphs on.",
        experiment=f"{capital(case.say('cuda_graph'))} and measure a short and a long length.",
    )
