"""`python -m service` is `shampoo-tuner`."""

from __future__ import annotations

from trainers.installation.command import main

if __name__ == "__main__":
    main()
