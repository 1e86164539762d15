"""What every engine must do: run once per engine, see ``conftest.engine``."""
