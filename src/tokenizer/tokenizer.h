/// \file  Tokenizers read from a Hugging Face `tokenizer.json`, equal id for id to the `tokenizers` library: byte-level
/// BPE (GPT-NeoX/OLMo, Qwen and GPT-2/RoBERTa kinds), BPE on text with bytes for unknown characters (Llama, Mixtral and
/// Gemma kinds) and BERT's WordPiece. Thread-safe for concurrent encode/decode.
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

namespace evenkeel {

class ChatTemplate;
struct TokenizerFile;

class Tokenizer {
 public:
  /// \throws kData (file, what is not supported or malformed). Supported: model BPE with the pre-tokenizers of split.h
  /// or none, model WordPiece with BertPreTokenizer; the normalizers of normalizer.h; post-processor ByteLevel,
  /// TemplateProcessing, RobertaProcessing, BertProcessing or a Sequence; the decoders of token_decoder.h; added tokens
  /// with lstrip, rstrip, single_word, normalized, special.
  /// `truncation` and `padding` are ignored with a warning.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  /// The tokenizer.json of a model's folder. \throws also kData naming the folder that has none.
  static Tokenizer of_model(const std::filesystem::path& folder);

  /// Token ids of `text` (UTF-8; invalid bytes are \throws kData with their offset). With `add_special_tokens` the
  /// post-processor's template is applied. Time O(n log n) in the length of the longest word.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens = true) const;

  /// The text of the tokens, as the library writes it. `raw`: where the decoder is ByteLevel, bytes that are not UTF-8
  /// stay. Ids
  /// that no token has (models pad their embedding) give nothing, as in the library. \throws kData on a negative id.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = false, bool raw = false) const;

  int64_t vocab_size() const;  ///< one more than the largest id, added tokens included
  /// Tokens that the tokenizer's class adds and no file names may lie beyond the embedding: texts with one are refused.
  /// \throws kData naming the folder when an embedding of `rows` lacks rows for ids that files name.
  void check_fits(int64_t rows, const std::filesystem::path& folder) const;
  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::string id_to_token(int64_t id) const;  ///< \throws kData when no token has it
  bool is_special(int64_t id) const;          ///< left out by a decode that skips special tokens
  bool is_byte_level() const;                 ///< BPE on bytes: words hold the space before them
  bool is_word_piece() const;                 ///< white space leaves no trace

  /// The chat template that lies beside tokenizer.json, or the one to use, read anew. \throws kData when there is none
  /// (tokenizer/chat_template.h)
  ChatTemplate chat_template() const;
  /// The tokens that files beside tokenizer.json name: bos_token, eos_token, ...; read anew.
  std::map<std::string, std::string> named_tokens() const;
  /// From now on the template is that of a file of one's own. Not thread-safe. \throws kIo, or kData when it is none.
  void use_chat_template(const std::filesystem::path& file);
  /// From now on the template's strftime_now writes this moment. Not thread-safe.
  void use_date(const jinja::Date& date);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

 private:
  struct Impl;
  static Tokenizer made(const std::filesystem::path& file, TokenizerFile (*read)(const std::filesystem::path&),
                        const std::filesystem::path& argument);
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace evenkeel
