"""PostgreSQL and Valkey from wheels, and the process tree that holds them.

Nothing in this package imports Django: it runs before the settings exist, in
`manage.py up` and in the test plugin.
"""
