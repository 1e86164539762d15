"""A small site for gunicorn: every answer is a cached value that says what it is."""
