"""Databases in tests: full ones, dumped ones, and a process that migrates one."""
