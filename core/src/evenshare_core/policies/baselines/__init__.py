"""What the papers compare with, as policies that an operator may choose in one order each."""
