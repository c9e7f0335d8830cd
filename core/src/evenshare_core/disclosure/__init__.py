"""The disclosed form of a round: ids become numbers, unread data is left out, and fields have
names.
"""
