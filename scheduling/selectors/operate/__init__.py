"""Problems that operators have to solve."""
