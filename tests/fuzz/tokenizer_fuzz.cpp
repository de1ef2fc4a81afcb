// Fuzzes a tokenizer.json: encodes and decodes a text with every class of characters.
#include "tests/fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const auto tokenizer = tokenizer::Tokenizer::load(fuzz::write("tokenizer.json", input));
  constexpr std::string_view kText =
      "It's 12 o'clock,  <s>don't</s> \t na\xc3\xafve A\xcc\x8a \xe4\xb8\xad\xe6\x96\x87 "
      "\xf0\x9f\x99\x82\n\n  [CLS] unaffable";
  const auto ids = tokenizer.encode(kText);
  for (const int64_t id : ids)
    if (id < 0 || id >= tokenizer.vocab_size()) fuzz::finding("an id outside the vocabulary", std::to_string(id));
  tokenizer.decode(ids);
  tokenizer.decode(ids, true, true);
}
