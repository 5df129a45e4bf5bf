"""``python -m autodist`` is the command ``autodist``."""

from autodist.cli import main

if __name__ == "__main__":
    main()
