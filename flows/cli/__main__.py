"""`python -m starpo.flows.cli`."""

from starpo.flows.cli import main

main()
