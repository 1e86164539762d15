"""The Redis engine against real servers, started here and stopped by their process ids."""
