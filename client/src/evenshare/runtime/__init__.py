"""The implementation of `evenshare.lease`: files, fence, signal and thread."""
