"""`python -m trunkline` is the `trunkline` command."""

from trunkline.cli.main import main

raise SystemExit(main())
