"""`python -m elastic_run`."""

from elastic_run.cli import main

main()
