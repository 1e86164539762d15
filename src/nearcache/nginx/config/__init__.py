"""nginx's configuration, as far as it is about caching.

read/   what it says
lint/   what is wrong with it
write/  one that is right, from a few answers
prove/  that it is, on a private nginx
"""
