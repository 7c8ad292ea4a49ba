"""Places of checkpoints: a directory, or a store of `pyarrow.fs`, which is imported only where one is used.

The API loads it without torch. Never the content of a checkpoint: that is in `trainers.checkpoints`.
"""

from trainers.storage.location import (
    WEIGHTS_FILE,
    InvalidPlace,
    Place,
    StoreFailed,
    StoreUri,
    masked,
    place_of,
    text_of,
)

__all__ = ["WEIGHTS_FILE", "InvalidPlace", "Place", "StoreFailed", "StoreUri", "masked", "place_of", "text_of"]
