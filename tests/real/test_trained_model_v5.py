"""Runs the comparisons of test_trained_model.py that depend on the release with transformers 5."""

from test_trained_model import (peer, test_answers_equal_those_of_transformers, test_conversations_are_written_as_by_transformers,  # noqa: F401
                                test_logits_and_perplexity_equal_those_of_transformers, tokenizer)
