"""Children of every kind of fork, which check each reply against its key."""
