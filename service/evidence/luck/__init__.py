"""The luck of a search: what another would find, and how probably a config is the best. Pure models, no words."""
