"""`python -m deepdraft`."""

import sys

from deepdraft.cli.main import main

sys.exit(main())
