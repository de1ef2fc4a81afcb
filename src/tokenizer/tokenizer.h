/// \file  Tokenizers read from a Hugging Face `tokenizer.json`, equal id for id to the `tokenizers` library: byte-level
/// BPE (GPT-NeoX/OLMo and GPT-2/RoBERTa kinds) and BERT's WordPiece. Thread-safe for concurrent encode/decode.
/// Example:  auto tok = Tokenizer::load("models/x/tokenizer.json");
///           tok.decode(tok.encode("Hello world")) == "Hello world"
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

class ChatTemplate;

class Tokenizer {
 public:
  /// \throws kData (file, what is not supported or malformed). Supported: model BPE with pre-tokenizer ByteLevel (own
  /// or split regex) or a Sequence, model WordPiece with BertPreTokenizer; normalizer null, NFC, BertNormalizer or a
  /// Sequence of these; post-processor ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or a Sequence;
  /// decoder ByteLevel, WordPiece or none; added tokens with lstrip, rstrip, single_word, normalized, special.
  /// `truncation` and `padding` are ignored with a warning.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  /// The tokenizer.json of a model's folder. \throws also kData naming the folder that has none.
  static Tokenizer of_model(const std::filesystem::path& folder);

  /// Token ids of `text` (UTF-8; invalid bytes are \throws kData with their offset). With `add_special_tokens` the
  /// post-processor's template is applied. Time O(n log n) in the length of the longest word.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens = true) const;

  /// Bytes of the tokens; invalid UTF-8 is replaced as the library does unless `raw`. Ids that no token has (models pad
  /// their embedding) give nothing, as in the library. \throws kData on a negative id.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = false, bool raw = false) const;

  int64_t vocab_size() const;  ///< one more than the largest id, added tokens included
  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::string id_to_token(int64_t id) const;  ///< \throws kData when no token has it
  bool is_special(int64_t id) const;          ///< left out by a decode that skips special tokens
  bool is_byte_level() const;                 ///< words hold the space before them; else white space leaves no trace

  /// The chat template that lies beside tokenizer.json, or the one to use, read anew. \throws kData when there is none
  /// (tokenizer/chat_template.h)
  ChatTemplate chat_template() const;
  /// From now on the template is that of a file of one's own. Not thread-safe. \throws kIo, or kData when it is none.
  void use_chat_template(const std::filesystem::path& file);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace evenkeel
