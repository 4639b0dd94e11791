"""`python -m edgewise.demo`."""

import sys
from importlib.util import find_spec

if __name__ == "__main__":
    missing = [name for name in ("rich", "matplotlib", "scipy") if find_spec(name) is None]
    if missing:
        sys.exit(f"the demo needs {' and '.join(missing)}: pip install 'edgewise[demo]'")
    from edgewise.demo.story import main

    sys.exit(main())
