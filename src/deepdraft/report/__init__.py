"""Reports: a run as a table, as one JSON object, as CSV. Works on records alone; nothing is run or fetched.

The plain text carries no colour, so there is nothing for NO_COLOR to turn off.
"""

from deepdraft.report.csv import results_csv
from deepdraft.report.json import RESULTS_SCHEMA_VERSION, results_object
from deepdraft.report.table import point_line, results_table

__all__ = ["RESULTS_SCHEMA_VERSION", "point_line", "results_csv", "results_object", "results_table"]
