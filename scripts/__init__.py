"""What people and CI call beside make: generated pages, servers, environments."""
