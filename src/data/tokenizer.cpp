#include "data/tokenizer.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "data/tokenizer_file.h"
#include "data/tokenizer_unicode.h"

namespace evenkeel {
namespace {

/// One id: what it is called, and what it decodes to.
struct Entry {
  bool exists = false;
  bool special = false;
  std::string content;
  std::string bytes;
};

std::string normalized_content(const AddedToken& token, bool nfc) {
  std::string storage;
  return std::string(token.normalized && nfc ? unicode::nfc(token.content, storage) : token.content);
}

std::vector<int64_t> filled(const Template& pieces, const std::vector<int64_t>& sequence, bool with_special) {
  std::vector<int64_t> out;
  out.reserve(sequence.size() + pieces.size());
  for (const auto& piece : pieces) {
    const auto& ids = piece.is_sequence ? sequence : piece.ids;
    if (piece.is_sequence || with_special) out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const TokenizerFile& file);
  void add_vocabulary(const TokenizerFile& file);
  void add_added_tokens(const TokenizerFile& file);
  Entry& entry(int64_t id);
  void encode_text(std::string_view text, std::vector<int64_t>& out) const;
  void encode_raw(std::string_view text, std::vector<int64_t>& out) const;

  BytePairEncoder bpe;
  PreTokenizer pre_tokenizer;
  bool nfc;
  bool byte_level_decoder;
  std::vector<Template> templates;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::vector<Entry> entries;
  std::unordered_map<std::string, int64_t> ids;
};

Tokenizer::Impl::Impl(const TokenizerFile& file)
    : bpe(file.vocabulary, file.merges, file.bpe),
      pre_tokenizer(file.pre_tokenizer, "pre_tokenizer"),
      nfc(file.nfc),
      byte_level_decoder(file.byte_level_decoder),
      templates(file.templates) {
  add_vocabulary(file);
  add_added_tokens(file);
}

Entry& Tokenizer::Impl::entry(int64_t id) {
  if (static_cast<size_t>(id) >= entries.size()) entries.resize(id + 1);
  return entries[id];
}

void Tokenizer::Impl::add_vocabulary(const TokenizerFile& file) {
  ids = file.vocabulary;
  for (const auto& [token, id] : file.vocabulary) {
    const auto bytes = byte_level_decoder ? bytes_of_token(token) : std::nullopt;
    entry(id) = {true, false, token, bytes.value_or(token)};
  }
}

/// Special is what has the content of a special token once normalised: so the library's decoder compares.
void Tokenizer::Impl::add_added_tokens(const TokenizerFile& file) {
  std::unordered_set<std::string> special;
  for (const auto& token : file.added)
    if (token.special) special.insert(token.content);
  for (const auto& token : file.added) {
    const auto content = normalized_content(token, nfc);
    (token.normalized ? normalized_tokens : raw_tokens).add(content, token);
    const auto bytes = byte_level_decoder ? bytes_of_token(content) : std::nullopt;
    entry(token.id) = {true, special.contains(content), token.content, bytes.value_or(content)};
    ids[token.content] = token.id;
  }
}

void Tokenizer::Impl::encode_text(std::string_view text, std::vector<int64_t>& out) const {
  pre_tokenizer.split(text, [&](std::string_view word) { bpe.encode(word, out); });
}

/// Raw added tokens come out of the text as it is, normalised ones out of the normalised rest.
void Tokenizer::Impl::encode_raw(std::string_view text, std::vector<int64_t>& out) const {
  std::vector<AddedTokenMatcher::Piece> raw_pieces, pieces;
  std::string storage;
  raw_tokens.split(text, raw_pieces);
  for (const auto& raw : raw_pieces) {
    if (raw.id >= 0) {
      out.push_back(raw.id);
      continue;
    }
    pieces.clear();
    normalized_tokens.split(nfc ? unicode::nfc(raw.text, storage) : raw.text, pieces);
    for (const auto& piece : pieces) piece.id >= 0 ? out.push_back(piece.id) : encode_text(piece.text, out);
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const auto file = tokenizer_json.string();
  try {
    return Tokenizer(std::make_unique<Impl>(read_tokenizer_file(tokenizer_json)));
  } catch (const Error& error) {
    const bool named = std::string_view(error.what()).find(file) != std::string_view::npos;
    if (named) throw;
    throw error.with_context(file);
  } catch (const Json::exception& error) {
    fail(kData, file, ": ", error.what());
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int64_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const size_t invalid = unicode::find_invalid(text);
  EK_CHECK(invalid == std::string_view::npos, kData, "text is not UTF-8: invalid byte at offset ", invalid);
  std::vector<int64_t> out;
  out.reserve(text.size() / 3 + 4);
  impl_->encode_raw(text, out);
  for (const auto& pieces : impl_->templates) out = filled(pieces, out, add_special_tokens);
  return out;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens, bool raw) const {
  std::string out;
  bool first = true;
  for (const int64_t id : ids) {
    EK_CHECK(id >= 0, kData, "token id ", id, " is negative");
    if (id >= vocab_size()) continue;
    const auto& entry = impl_->entries[id];
    if (!entry.exists || (skip_special_tokens && entry.special)) continue;
    if (!impl_->byte_level_decoder && !std::exchange(first, false)) out += ' ';
    out += entry.bytes;
  }
  if (raw || unicode::find_invalid(out) == std::string::npos) return out;
  return unicode::replace_invalid(out);
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(impl_->entries.size()); }

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto found = impl_->ids.find(std::string(token));
  return found == impl_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::string Tokenizer::id_to_token(int64_t id) const {
  const bool known = id >= 0 && id < vocab_size() && impl_->entries[id].exists;
  EK_CHECK(known, kData, "no token has id ", id, "; ids go from 0 to ", vocab_size() - 1);
  return impl_->entries[id].content;
}

}  // namespace evenkeel
