"""Language models: text to tokens on disk, the standard library's source as text, and the transformers. Never
architectures of `transformers`."""
