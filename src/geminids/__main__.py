"""`python -m geminids` runs the command line."""

from geminids.cli import main

if __name__ == "__main__":
    main()
