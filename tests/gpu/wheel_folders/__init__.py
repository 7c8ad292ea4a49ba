"""Folders of wheels for a machine without a network: filled where there is one, installed there."""
