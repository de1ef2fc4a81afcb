"""The same tests beside transformers 5."""
from test_scaled_rope import *  # noqa: F401,F403
