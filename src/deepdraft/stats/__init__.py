"""Statistics of small samples: summaries, percentiles that the samples carry, means with distinct names, ranks.

Knows nothing of requests or servers; takes plain numbers and gives plain numbers. No randomness, no dependencies.
"""

from deepdraft.stats.mean import mean_of_samples, weighted_mean
from deepdraft.stats.percentile import min_num_samples, percentile, percentile_bound
from deepdraft.stats.rank import spearman
from deepdraft.stats.summary import Summary, median, summary

__all__ = [
    "Summary",
    "mean_of_samples",
    "median",
    "min_num_samples",
    "percentile",
    "percentile_bound",
    "spearman",
    "summary",
    "weighted_mean",
]
