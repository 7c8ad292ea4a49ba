"""Any architecture that `transformers` builds from a config, with the data of its task. Never models written here."""
