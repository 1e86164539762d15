"""Who asks web servers: a client of our own for fixed rates, wrk for as much as there can be."""
