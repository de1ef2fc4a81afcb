"""`python -m evenkeel_moe` is the program, with one command of its own: `rows`, which makes JSON lines of tables."""

import sys

from . import _program, _rows_command

if sys.argv[1:2] == ["rows"]:
    _rows_command.main(sys.argv[2:])
_program.main()
