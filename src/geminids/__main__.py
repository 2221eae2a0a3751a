"""Run the command line of geminids when Python is started with `python -m geminids`."""

from geminids.cli import main

if __name__ == "__main__":
    main()
