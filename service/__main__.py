"""`python -m service` is `shampoo-tuner`."""

from __future__ import annotations

from service.cli.commands import main

if __name__ == "__main__":
    main()
