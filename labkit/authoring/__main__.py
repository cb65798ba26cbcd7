"""`python -m labkit.authoring` is `labkit build`."""

import sys

from labkit.authoring import main

sys.exit(main(sys.argv[1:]))
