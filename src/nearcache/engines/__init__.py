"""Engines: bytes in, bytes out. None of them imports Django; a test says so."""
