"""Image classification on a user's images: finding, decoding, transforming, and the models. Never other data."""
