"""`python -P -m ahpd.worker [--frames IN,OUT]`: one worker, started by a host."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
