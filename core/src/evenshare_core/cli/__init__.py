"""The command `evenshare-core`: the only part of the library that touches files and a terminal."""
