"""PostgreSQL and Valkey from wheels, and their process tree.

No module here imports Django: `manage.py up` and the test plugin run them before settings exist.
"""
