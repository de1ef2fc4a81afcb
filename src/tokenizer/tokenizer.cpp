#include "tokenizer/tokenizer.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "tokenizer/bert.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer_json.h"

namespace evenkeel::tokenizer {
namespace {

/// A token: its content, and the text for the decoder (its bytes, if the only decoder is ByteLevel).
struct Token {
  bool exists = false;
  bool special = false;
  std::string content;
  std::string decoded;
};

struct BytePairModel {
  BytePairEncoder encoder;
  PreTokenizer pre_tokenizer;

  void encode(std::string_view text, bool first, std::vector<int64_t>& out) const {
    pre_tokenizer.split(text, first, [&](std::string_view word) { encoder.encode(word, out); });
  }
};

struct WordPieceModel {
  WordPieceEncoder encoder;

  void encode(std::string_view text, bool, std::vector<int64_t>& out) const {
    bert_words(text, [&](std::string_view word) { encoder.encode(word, out); });
  }
};

struct UnigramModel {
  UnigramEncoder encoder;
  PreTokenizer pre_tokenizer;

  void encode(std::string_view text, bool first, std::vector<int64_t>& out) const {
    const bool bytes = pre_tokenizer.has_byte_level();
    pre_tokenizer.split(text, first, [&](std::string_view word) {
      bytes ? encoder.encode(token_of_bytes(word), out) : encoder.encode(word, out);
    });
  }
};

using Model = std::variant<BytePairModel, WordPieceModel, UnigramModel>;

Model make_model(TokenizerFile& file) {
  if (file.unigram) return UnigramModel{UnigramEncoder(*file.unigram), std::move(file.pre_tokenizer)};
  if (file.word_piece) return WordPieceModel{WordPieceEncoder(file.vocabulary, *file.word_piece)};
  return BytePairModel{BytePairEncoder(file.vocabulary, file.merges, file.bpe), std::move(file.pre_tokenizer)};
}

/// Puts the template's special tokens before the sequence, if `before`, and after it, if `after`.
std::vector<int64_t> filled(const Template& pieces, const std::vector<int64_t>& sequence, bool before, bool after) {
  std::vector<int64_t> out;
  out.reserve(sequence.size() + pieces.size());
  bool passed = false;
  for (const auto& piece : pieces) {
    const auto& ids = piece.is_sequence ? sequence : piece.ids;
    if (piece.is_sequence || (passed ? after : before)) out.insert(out.end(), ids.begin(), ids.end());
    passed = passed || piece.is_sequence;
  }
  return out;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerFile file);
  void add_vocabulary(const TokenizerFile& file);
  void add_equal_pieces(const TokenizerFile& file);
  void add_added_tokens(const TokenizerFile& file);
  void check_templates() const;
  Token& entry(int64_t id);
  void encode_text(std::string_view text, bool first, std::vector<int64_t>& out) const;
  void encode_raw(std::string_view text, std::vector<int64_t>& out) const;
  std::string decoded(const std::string& token) const;

  Model model;
  Normalizer normalizer;
  TokenDecoder decoder;
  std::vector<Template> templates;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::vector<Token> entries;
  /// One more than the last id that a file names, without tokens that only the tokenizer's class adds.
  int64_t named = 0;
  std::unordered_map<std::string, int64_t> ids;
  std::filesystem::path folder;        ///< folder of the tokenizer's file
  std::optional<jinja::Date> date;     ///< the date that strftime_now of templates returns
  std::filesystem::path own_template;  ///< replaces the folder's chat template; empty: no replacement
};

Tokenizer::Impl::Impl(TokenizerFile file)
    : model(make_model(file)),
      normalizer(std::move(file.normalizer)),
      decoder(std::move(file.decoder)),
      templates(file.templates) {
  add_vocabulary(file);
  add_added_tokens(file);
  check_templates();
}

Token& Tokenizer::Impl::entry(int64_t id) {
  if (static_cast<size_t>(id) >= entries.size()) entries.resize(id + 1);
  return entries[id];
}

void Tokenizer::Impl::add_vocabulary(const TokenizerFile& file) {
  ids = file.vocabulary;
  for (const auto& [token, id] : file.vocabulary) entry(id) = {true, false, token, decoded(token)};
  add_equal_pieces(file);
  named = static_cast<int64_t>(entries.size());
}

/// Adds the pieces of a unigram model that stand again later in its list. They have the flags of their text.
void Tokenizer::Impl::add_equal_pieces(const TokenizerFile& file) {
  if (!file.unigram) return;
  std::unordered_set<std::string> special;
  for (const auto& token : file.added)
    if (token.special) special.insert(token.content);
  int64_t id = 0;
  for (const auto& piece : file.unigram->pieces) entry(id++) = {true, special.contains(piece), piece, decoded(piece)};
}

std::string Tokenizer::Impl::decoded(const std::string& token) const {
  return decoder.is_byte_level() ? bytes_of_token(token).value_or(token) : token;
}

/// Adds added tokens. A token is special if its normalised content is that of a special token, as in the tokenizers
/// library.
void Tokenizer::Impl::add_added_tokens(const TokenizerFile& file) {
  std::unordered_set<std::string> special;
  for (const auto& token : file.added)
    if (token.special) special.insert(token.content);
  for (const auto& token : file.added) {
    std::string storage;
    const std::string content(token.normalized ? normalizer(token.content, storage) : token.content);
    (token.normalized ? normalized_tokens : raw_tokens).add(content, token);
    entry(token.id) = {true, special.contains(content), token.content, decoded(content)};
    ids[token.content] = token.id;
    if (!token.by_class) named = std::max(named, token.id + 1);
  }
}

/// Checks that all ids of the templates have tokens, because a model would have no embedding for others.
void Tokenizer::Impl::check_templates() const {
  for (const auto& pieces : templates)
    for (const auto& piece : pieces)
      for (const int64_t id : piece.ids)
        EK_CHECK(static_cast<size_t>(id) < entries.size() && entries[id].exists, kData, "post_processor adds the id ",
                 id, ", which no token has");
}

void Tokenizer::Impl::encode_text(std::string_view text, bool first, std::vector<int64_t>& out) const {
  std::visit([&](const auto& chosen) { chosen.encode(text, first, out); }, model);
}

/// Encodes text: raw added tokens are found in the text itself, normalised ones in the normalised rest.
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
    const auto normalized = normalizer(raw.text, storage);
    const bool first = raw.text.data() == text.data();
    normalized_tokens.split(normalized, pieces);
    for (const auto& piece : pieces) {
      if (piece.id >= 0)
        out.push_back(piece.id);
      else
        encode_text(piece.text, first && piece.text.data() == normalized.data(), out);
    }
  }
}

Tokenizer Tokenizer::made(const std::filesystem::path& file, TokenizerFile (*read)(const std::filesystem::path&),
                          const std::filesystem::path& argument) {
  try {
    Tokenizer loaded(std::make_unique<Impl>(read(argument)));
    loaded.impl_->folder = file.parent_path();
    return loaded;
  } catch (const Error& error) {
    const bool named = std::string_view(error.what()).find(argument.string()) != std::string_view::npos;
    if (named) throw;
    throw error.with_context(file.string());
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return made(tokenizer_json, read_tokenizer_file, tokenizer_json);
}

Tokenizer Tokenizer::of_model(const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer.json";
  EK_CHECK(path_exists(file), kData, folder.string(), " has no tokenizer.json: a model needs a tokenizer");
  return made(file, read_tokenizer_folder, folder);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int64_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode_with(text, add_special_tokens ? SpecialTokens::kAround : SpecialTokens::kNone);
}

std::vector<int64_t> Tokenizer::encode_prompt(std::string_view text) const {
  return encode_with(text, SpecialTokens::kBefore);
}

std::vector<int64_t> Tokenizer::encode_with(std::string_view text, SpecialTokens special) const {
  const size_t invalid = unicode::find_invalid(text);
  EK_CHECK(invalid == std::string_view::npos, kData, "text is not UTF-8: invalid byte at offset ", invalid);
  std::vector<int64_t> out;
  out.reserve(text.size() / 3 + 4);
  impl_->encode_raw(text, out);
  for (const auto& pieces : impl_->templates)
    out = filled(pieces, out, special != SpecialTokens::kNone, special == SpecialTokens::kAround);
  return out;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens, bool raw) const {
  std::vector<std::string> tokens;
  std::string bytes;
  const bool joins = impl_->decoder.is_byte_level();
  for (const int64_t id : ids) {
    EK_CHECK(id >= 0, kData, "token id ", id, " is negative");
    if (id >= vocab_size()) continue;
    const auto& entry = impl_->entries[id];
    if (!entry.exists || (skip_special_tokens && entry.special)) continue;
    joins ? void(bytes += entry.decoded) : tokens.push_back(entry.decoded);
  }
  if (!joins) return impl_->decoder.decode(std::move(tokens));
  return raw || unicode::find_invalid(bytes) == std::string::npos ? bytes : unicode::replace_invalid(bytes);
}

ChatTemplates Tokenizer::chat_templates() const {
  const auto& own = impl_->own_template;
  auto made = own.empty() ? ChatTemplates::of_model(impl_->folder) : ChatTemplates::of_file(own, impl_->folder);
  if (impl_->date) made.use_date(*impl_->date);
  return made;
}

void Tokenizer::use_date(const jinja::Date& date) { impl_->date = date; }

void Tokenizer::use_chat_template(const std::filesystem::path& file) {
  ChatTemplates::of_file(file, impl_->folder);
  impl_->own_template = file;
}

std::map<std::string, std::string> Tokenizer::named_tokens() const { return special_tokens_of(impl_->folder); }

bool Tokenizer::is_special(int64_t id) const {
  return id >= 0 && id < vocab_size() && impl_->entries[static_cast<size_t>(id)].special;
}

bool Tokenizer::is_byte_level() const {
  const auto* model = std::get_if<BytePairModel>(&impl_->model);
  return model && model->pre_tokenizer.has_byte_level();
}

bool Tokenizer::is_word_piece() const { return std::holds_alternative<WordPieceModel>(impl_->model); }

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(impl_->entries.size()); }

void Tokenizer::check_fits(int64_t rows, const std::filesystem::path& folder) const {
  EK_CHECK(impl_->named <= rows, kData, folder.string(), ": the tokenizer has ", impl_->named,
           " ids with the tokens that tokenizer.json and the files beside it add, the model's embedding has ", rows,
           "; the last is ", shown(id_to_token(impl_->named - 1)));
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto found = impl_->ids.find(std::string(token));
  return found == impl_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::string Tokenizer::id_to_token(int64_t id) const {
  const bool known = id >= 0 && id < vocab_size() && impl_->entries[id].exists;
  EK_CHECK(known, kData, "no token has id ", id, "; ids go from 0 to ", vocab_size() - 1);
  return impl_->entries[id].content;
}

}  // namespace evenkeel::tokenizer
