"""`python -m subtext.cli`."""

from subtext.cli.main import main

main()
