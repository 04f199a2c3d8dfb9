"""Other people's results, read into our records: benchmark tools' files, servers' logs, and tables typed in by hand.

One file a format. A format fills in what its file says and nothing more: a figure without a source is absent, a
statistic is named as one, a definition that differs from ours stands beside the figure, and what is known to mislead
in a tool stands with the source. Nothing is measured here and no network is used.
"""

from deepdraft.importers.formats import FORMATS, Format, format_of, import_file
from deepdraft.importers.imported import Imported, run_of

__all__ = ["FORMATS", "Format", "Imported", "format_of", "import_file", "run_of"]
