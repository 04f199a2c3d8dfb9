"""The version of a results file's lines; a reader refuses files of a newer one.

2: reported points, and the header's source. Files of version 1 read as they are.
"""

SCHEMA_VERSION = 2
