"""`python -m lab` is `fpa-lab`."""

from lab.cli import main

if __name__ == "__main__":
    main()
