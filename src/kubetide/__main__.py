"""`python -m kubetide`"""

from kubetide.cli.main import main

if __name__ == "__main__":
    main()
