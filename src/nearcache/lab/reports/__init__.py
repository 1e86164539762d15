"""Readers of a sample. They compute and draw; they never measure."""
