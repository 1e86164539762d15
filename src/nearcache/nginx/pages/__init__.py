"""A page of the doctor as one HTML file. In a terminal ``nearcache/report`` shows the same page."""
