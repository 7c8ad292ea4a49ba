"""Inputs at random, of bodies and addresses: never a server error. A named case stands with its route."""
