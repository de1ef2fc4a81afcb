#include "tokenizer/sentence_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {
namespace {

/// Returns true for white space as in Python's str.strip, which includes the four separators of ASCII.
bool is_blank(uint32_t code_point) {
  return (code_point >= 0x1C && code_point <= 0x1F) || (unicode::flags()[code_point] & unicode::kSpace) != 0;
}

std::string_view stripped(std::string_view text) {
  while (!text.empty()) {
    const auto code = unicode::decode(text.data());
    if (!is_blank(code.value)) break;
    text.remove_prefix(code.length);
  }
  while (!text.empty()) {
    const auto code = unicode::decode_before(text.data(), text.data() + text.size());
    if (!is_blank(code.value)) break;
    text.remove_suffix(code.length);
  }
  return text;
}

/// Returns the tokenizer's limit of tokens. Tokenizers without a limit have 1e30.
int64_t limit_of(const JsonView& config, int64_t otherwise) {
  const auto limit = config.find("model_max_length");
  if (!limit) return otherwise;
  limit->require(limit->number() >= 3, " is ", shown(limit->json()), ", allowed: 3 or more");
  return limit->number() >= static_cast<double>(otherwise) ? otherwise : static_cast<int64_t>(limit->number());
}

int64_t read_limit(const fs::path& file, int64_t max_tokens) {
  if (!path_exists(file)) return max_tokens;
  const Json json = load_json(file);
  const JsonView config(json, file.string());
  if (const auto side = config.find("truncation_side"))
    side->require(side->json() == "right", " is ", shown(side->json()), ", supported: \"right\"");
  return limit_of(config, max_tokens);
}

}  // namespace

SentenceTokenizer::SentenceTokenizer(Tokenizer tokenizer, int64_t first, int64_t last, int64_t max_tokens)
    : tokenizer_(std::move(tokenizer)), first_(first), last_(last), max_tokens_(max_tokens) {}

SentenceTokenizer SentenceTokenizer::load(const fs::path& folder, int64_t max_tokens) {
  EK_CHECK(max_tokens >= 3, kData, folder.string(), ": the encoder takes ", max_tokens, " tokens, needed: 3 or more");
  EK_CHECK(path_exists(folder / "tokenizer.json"), kData, folder.string(),
           " has no tokenizer.json: a model needs a tokenizer");
  auto tokenizer = Tokenizer::load(folder / "tokenizer.json");
  EK_CHECK(tokenizer.is_byte_level() || tokenizer.is_word_piece(), kData, (folder / "tokenizer.json").string(),
           ": an encoder needs byte-level BPE or WordPiece");
  const auto ends = tokenizer.encode("");
  EK_CHECK(ends.size() == 2, kData, (folder / "tokenizer.json").string(), ": the post_processor puts ", ends.size(),
           " special tokens around a text, expected one at each end");
  return {std::move(tokenizer), ends[0], ends[1], read_limit(folder / "tokenizer_config.json", max_tokens)};
}

std::string SentenceTokenizer::prepared(std::string_view body) const {
  if (tokenizer_.is_byte_level()) return std::string(1, ' ').append(body);
  std::string storage;
  return std::string(unicode::nfc(body, storage));
}

Sentence SentenceTokenizer::encode(std::string_view text) const {
  const size_t invalid = unicode::find_invalid(text);
  EK_CHECK(invalid == std::string_view::npos, kData, "text is not UTF-8: invalid byte at offset ", invalid);
  const auto body = stripped(text);
  const auto inner = body.empty() ? std::vector<int64_t>() : tokenizer_.encode(prepared(body), false);
  const size_t limit = static_cast<size_t>(max_tokens_ - 2), length = std::min(inner.size(), limit);
  Sentence sentence{{first_}, inner.size() > limit};
  sentence.ids.insert(sentence.ids.end(), inner.begin(), inner.begin() + static_cast<std::ptrdiff_t>(length));
  sentence.ids.push_back(last_);
  return sentence;
}

}  // namespace evenkeel::tokenizer
