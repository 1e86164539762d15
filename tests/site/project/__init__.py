"""The site: small views that do what sites do with a cache, and say what they did."""
