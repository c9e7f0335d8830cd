"""The implementation of `evenshare.lease`: files, fencing, signals and threads."""
