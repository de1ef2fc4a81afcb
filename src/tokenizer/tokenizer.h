/// \file  Encodes and decodes text with a Hugging Face `tokenizer.json`. The ids equal those of the `tokenizers`
/// library. Supported models: byte-level BPE (GPT-NeoX/OLMo, Qwen, GPT-2/RoBERTa), BPE on text with byte fallback
/// (Llama, Mixtral, Gemma), unigram language models (T5, XLM-RoBERTa) and BERT's WordPiece.
/// Example:  auto tok = Tokenizer::load("models/x/tokenizer.json");
///           tok.decode(tok.encode("Hello world")) == "Hello world"
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/date.h"

namespace evenkeel::tokenizer {

class ChatTemplates;
struct TokenizerFile;

/// A tokenizer. The const functions are thread-safe.
class Tokenizer {
 public:
  /// Reads one tokenizer.json, without the other files of its folder. Supported: models BPE and Unigram with the
  /// pre-tokenizers of split.h or none; model WordPiece with BertPreTokenizer; the normalizers of normalizer.h;
  /// post-processor ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or a Sequence; the decoders of
  /// token_decoder.h; added tokens with lstrip, rstrip, single_word, normalized, special. `truncation` and `padding`
  /// are ignored with a warning.
  /// \throws kData (file, and what is unsupported or malformed).
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  /// Reads tokenizer.json of a model's folder together with the other tokenizer files (tokenizer_folder.h), as
  /// transformers' AutoTokenizer does. \throws kData as load(), or naming the folder if it has no tokenizer.json.
  static Tokenizer of_model(const std::filesystem::path& folder);

  /// Returns the token ids of `text`. With `add_special_tokens` the post-processor's special tokens are added. Cost:
  /// O(n log n) in the length of the longest word; for Unigram O(n l) with the length l of the longest piece.
  /// \throws kData for invalid UTF-8, with the byte offset, and for an unknown character if Unigram has no unk_id.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens = true) const;
  /// Returns the token ids of a text that another text follows: the post-processor's special tokens before the text are
  /// added, those after it are not. \throws as encode()
  std::vector<int64_t> encode_prompt(std::string_view text) const;

  /// Returns the text of the tokens, equal to the library's. Ids without a token are skipped (embeddings may be
  /// padded). With `skip_special_tokens`, special tokens are skipped too. Invalid UTF-8 is replaced by U+FFFD, unless
  /// `raw` is true and the decoder is ByteLevel. \throws kData for a negative id.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = false, bool raw = false) const;

  /// Returns the largest id + 1, including added tokens.
  int64_t vocab_size() const;
  /// Checks that a model's embedding has a row for each token that the tokenizer's files name. Tokens that only the
  /// tokenizer's class adds are not checked. \param rows  rows of the embedding \param folder  for the message
  /// \throws kData naming the folder.
  void check_fits(int64_t rows, const std::filesystem::path& folder) const;
  /// Returns the id of a token, or nothing if there is no such token.
  std::optional<int64_t> token_to_id(std::string_view token) const;
  /// Returns the token of an id, as written in the file. \throws kData if no token has the id.
  std::string id_to_token(int64_t id) const;
  /// Returns true if decode() with `skip_special_tokens` skips the id.
  bool is_special(int64_t id) const;
  /// Returns true for BPE on bytes. Its words include the space before them.
  bool is_byte_level() const;
  /// Returns true for WordPiece. Its tokens do not preserve white space.
  bool is_word_piece() const;

  /// Reads the chat templates of the folder, or the file given to use_chat_template(). They are read at every call.
  /// \throws kData if there is none or it is invalid (tokenizer/chat_template.h).
  ChatTemplates chat_templates() const;
  /// Reads the tokens that the folder's files name, e.g. bos_token: the result maps each name to its text. The files
  /// are read at every call.
  std::map<std::string, std::string> named_tokens() const;
  /// Makes chat_templates() read `file` from now on. Not thread-safe. \throws kIo if it cannot be read; kData if it is
  /// not a valid template.
  void use_chat_template(const std::filesystem::path& file);
  /// Makes the chat template's strftime_now return this date from now on. Not thread-safe.
  void use_date(const jinja::Date& date);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

 private:
  struct Impl;
  enum class SpecialTokens { kNone, kBefore, kAround };
  std::vector<int64_t> encode_with(std::string_view text, SpecialTokens special) const;
  static Tokenizer made(const std::filesystem::path& file, TokenizerFile (*read)(const std::filesystem::path&),
                        const std::filesystem::path& argument);
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace evenkeel::tokenizer
