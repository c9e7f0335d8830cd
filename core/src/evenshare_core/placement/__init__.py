"""Where a gang goes: pure placement rules over free GPUs."""
