// Fuzzes the tokenizer files of a model folder: {"tokenizer.json": .., "tokenizer_config.json": .., ..}.
#include "base/plain/json.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_folder.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const Json files = parse_json(input, "input");
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"}) {
    const bool given = files.is_object() && files.contains(name);
    given ? void(fuzz::write(name, files.at(name).dump())) : void(fs::remove(fuzz::folder() / name));
  }
  const auto tokenizer = tokenizer::Tokenizer::of_model(fuzz::folder());
  const auto ids = tokenizer.encode("It's <|im_end|> a <z> b\xc3\xaf\n<x>");
  for (const int64_t id : ids)
    if (id < 0 || id >= tokenizer.vocab_size()) fuzz::finding("an id outside the vocabulary", std::to_string(id));
  tokenizer.decode(ids, true);
  tokenizer::TokenizerFolder(fuzz::folder(), tokenizer::TokenizerFolder::Purpose::kNames).named_tokens();
}
