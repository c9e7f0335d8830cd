"""What stands behind `evenshare.lease`: the files, the fence, the signal and its thread."""
