"""Problems that need an operator."""
