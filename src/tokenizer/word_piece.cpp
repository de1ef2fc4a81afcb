#include "tokenizer/word_piece.h"

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::tokenizer {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

int64_t unk_id(const WordPieceEncoder::Vocabulary& vocabulary, const std::string& token) {
  const auto found = vocabulary.find(token);
  EK_CHECK(found != vocabulary.end(), kData, "model.unk_token \"", token, "\" is not in the vocabulary");
  return found->second;
}

}  // namespace

WordPieceEncoder::WordPieceEncoder(const Vocabulary& vocabulary, const WordPieceOptions& options)
    : unk_id_(unk_id(vocabulary, options.unk_token)), max_characters_(options.max_characters) {
  for (const auto& [token, id] : vocabulary) {
    first_.emplace(token, id);
    if (token.starts_with(options.prefix)) next_.emplace(token.substr(options.prefix.size()), id);
    longest_ = std::max(longest_, token.size());
  }
}

void WordPieceEncoder::encode(std::string_view word, std::vector<int64_t>& out) const {
  const size_t before = out.size();
  bool known = std::count_if(word.begin(), word.end(), begins_character) <= max_characters_;
  for (size_t begin = 0; known && begin < word.size();) {
    const auto& pieces = begin == 0 ? first_ : next_;
    size_t length = std::min(word.size() - begin, longest_);
    auto found = pieces.end();
    for (; length > 0 && found == pieces.end(); --length)
      if (begin + length == word.size() || begins_character(word[begin + length]))
        found = pieces.find(word.substr(begin, length));
    known = found != pieces.end();
    if (!known) break;
    out.push_back(found->second);
    begin += found->first.size();
  }
  if (known) return;
  out.resize(before);
  out.push_back(unk_id_);
}

}  // namespace evenkeel::tokenizer
