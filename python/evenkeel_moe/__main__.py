"""`python -m evenkeel_moe` is the program."""

from ._program import main

main()
