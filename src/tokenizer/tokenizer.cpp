#include "tokenizer/tokenizer.h"

#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/files.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"

namespace evenkeel {
namespace {

/// One id: what it is called, and what it decodes to.
struct Token {
  bool exists = false;
  bool special = false;
  std::string content;
  std::string bytes;
};

struct Normalizer {
  bool nfc;
  std::optional<BertNormalizer> bert;

  std::string_view operator()(std::string_view text, std::string& storage) const {
    const auto composed = nfc ? unicode::nfc(text, storage) : text;
    return bert ? bert->normalized(composed, storage) : composed;
  }
};

struct BytePairModel {
  BytePairEncoder encoder;
  PreTokenizer pre_tokenizer;

  void encode(std::string_view text, std::vector<int64_t>& out) const {
    pre_tokenizer.split(text, [&](std::string_view word) { encoder.encode(word, out); });
  }
};

struct WordPieceModel {
  WordPieceEncoder encoder;

  void encode(std::string_view text, std::vector<int64_t>& out) const {
    bert_words(text, [&](std::string_view word) { encoder.encode(word, out); });
  }
};

using Model = std::variant<BytePairModel, WordPieceModel>;

Model make_model(TokenizerFile& file) {
  if (file.word_piece) return WordPieceModel{WordPieceEncoder(file.vocabulary, *file.word_piece)};
  return BytePairModel{BytePairEncoder(file.vocabulary, file.merges, file.bpe), std::move(*file.pre_tokenizer)};
}

/// A decoded piece with its space, as English is written: no space before punctuation.
void clean_up(std::string& piece) {
  // clang-format off
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kWritten{{
      {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
      {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}};
  // clang-format on
  for (const auto& [apart, written] : kWritten)
    for (size_t at = 0; (at = piece.find(apart, at)) != std::string::npos; at += written.size())
      piece.replace(at, apart.size(), written);
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
  explicit Impl(TokenizerFile file);
  void add_vocabulary(const TokenizerFile& file);
  void add_added_tokens(const TokenizerFile& file);
  void check_templates() const;
  Token& entry(int64_t id);
  void encode_text(std::string_view text, std::vector<int64_t>& out) const;
  void encode_raw(std::string_view text, std::vector<int64_t>& out) const;
  void decode_token(const Token& token, bool first, std::string& out) const;

  Model model;
  Normalizer normalizer;
  TokenDecoder decoder;
  std::string piece_prefix;
  bool cleanup;
  std::vector<Template> templates;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::vector<Token> entries;
  std::unordered_map<std::string, int64_t> ids;
  std::filesystem::path folder;        ///< of the file
  std::filesystem::path own_template;  ///< in the place of the folder's chat template; empty: none
};

Tokenizer::Impl::Impl(TokenizerFile file)
    : model(make_model(file)),
      normalizer{file.nfc, file.bert},
      decoder(file.decoder),
      piece_prefix(file.piece_prefix),
      cleanup(file.cleanup),
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
  for (const auto& [token, id] : file.vocabulary) {
    const auto bytes = decoder == TokenDecoder::kByteLevel ? bytes_of_token(token) : std::nullopt;
    entry(id) = {true, false, token, bytes.value_or(token)};
  }
}

/// Special is what has the content of a special token once normalised: so the library's decoder compares.
void Tokenizer::Impl::add_added_tokens(const TokenizerFile& file) {
  std::unordered_set<std::string> special;
  for (const auto& token : file.added)
    if (token.special) special.insert(token.content);
  for (const auto& token : file.added) {
    std::string storage;
    const std::string content(token.normalized ? normalizer(token.content, storage) : token.content);
    (token.normalized ? normalized_tokens : raw_tokens).add(content, token);
    const auto bytes = decoder == TokenDecoder::kByteLevel ? bytes_of_token(content) : std::nullopt;
    entry(token.id) = {true, special.contains(content), token.content, bytes.value_or(content)};
    ids[token.content] = token.id;
  }
}

/// A model would look for the embedding of such an id where there is none.
void Tokenizer::Impl::check_templates() const {
  for (const auto& pieces : templates)
    for (const auto& piece : pieces)
      for (const int64_t id : piece.ids)
        EK_CHECK(static_cast<size_t>(id) < entries.size() && entries[id].exists, kData, "post_processor adds the id ",
                 id, ", which no token has");
}

void Tokenizer::Impl::encode_text(std::string_view text, std::vector<int64_t>& out) const {
  std::visit([&](const auto& chosen) { chosen.encode(text, out); }, model);
}

/// Appends a token as it stands in decoded text, first or behind others.
void Tokenizer::Impl::decode_token(const Token& token, bool first, std::string& out) const {
  if (decoder == TokenDecoder::kNone && !first) out += ' ';
  if (decoder != TokenDecoder::kWordPiece) {
    out += token.bytes;
    return;
  }
  const bool goes_on = !first && token.bytes.starts_with(piece_prefix);
  auto piece = goes_on ? token.bytes.substr(piece_prefix.size()) : first ? token.bytes : ' ' + token.bytes;
  if (cleanup) clean_up(piece);
  out += piece;
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
    normalized_tokens.split(normalizer(raw.text, storage), pieces);
    for (const auto& piece : pieces) piece.id >= 0 ? out.push_back(piece.id) : encode_text(piece.text, out);
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const auto file = tokenizer_json.string();
  try {
    Tokenizer loaded(std::make_unique<Impl>(read_tokenizer_file(tokenizer_json)));
    loaded.impl_->folder = tokenizer_json.parent_path();
    return loaded;
  } catch (const Error& error) {
    const bool named = std::string_view(error.what()).find(file) != std::string_view::npos;
    if (named) throw;
    throw error.with_context(file);
  }
}

Tokenizer Tokenizer::of_model(const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer.json";
  EK_CHECK(path_exists(file), kData, folder.string(), " has no tokenizer.json: a model needs a tokenizer");
  return load(file);
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
    impl_->decode_token(entry, std::exchange(first, false), out);
  }
  if (raw || unicode::find_invalid(out) == std::string::npos) return out;
  return unicode::replace_invalid(out);
}

ChatTemplate Tokenizer::chat_template() const {
  const auto& own = impl_->own_template;
  return own.empty() ? ChatTemplate::of_model(impl_->folder) : ChatTemplate::of_file(own, impl_->folder);
}

void Tokenizer::use_chat_template(const std::filesystem::path& file) {
  ChatTemplate::of_file(file, impl_->folder);
  impl_->own_template = file;
}

bool Tokenizer::is_special(int64_t id) const {
  return id >= 0 && id < vocab_size() && impl_->entries[static_cast<size_t>(id)].special;
}

bool Tokenizer::is_byte_level() const { return std::holds_alternative<BytePairModel>(impl_->model); }

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
