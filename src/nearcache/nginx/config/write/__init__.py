"""A safe cache configuration for a Django application, from a few answers.

    answers.py    what is asked, and what no configuration could be made of
    files.py      the files, from the templates beside
    templates/    what nginx, njs and Django get to read

What is in the key is what is forwarded, byte for byte, and the key is written once: an
argument that is dropped is dropped for the application too. So there is no unkeyed input.
"""
