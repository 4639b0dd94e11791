"""`python -m edgewise` is the command `edgewise`."""

from edgewise.cli import main

raise SystemExit(main())
