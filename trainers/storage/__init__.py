"""Where checkpoints lie: in a directory, or in a store of `pyarrow.fs`, which is imported only where one is used."""

from trainers.storage.location import InvalidPlace, Place, StoreFailed, StoreUri, masked, place_of, text_of

__all__ = ["InvalidPlace", "Place", "StoreFailed", "StoreUri", "masked", "place_of", "text_of"]
