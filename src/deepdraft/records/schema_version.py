"""The version of a results file's lines; a reader refuses files of a newer one.

2: reported points, and the header's source. 3: files of components. Files of older versions read as they are.
"""

SCHEMA_VERSION = 3
