"""The same tests beside transformers 5."""
from test_olmo import *  # noqa: F401,F403
