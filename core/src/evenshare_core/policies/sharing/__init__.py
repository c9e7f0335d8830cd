"""Policies that share mixed GPU types by a program: oef, and what others like it are built on."""
