"""The pages in a real Chromium, story by story. What needs no browser is tested beside this folder."""
