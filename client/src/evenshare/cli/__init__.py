"""The command `evenshare`: argparse and urllib, so that it installs anywhere."""
