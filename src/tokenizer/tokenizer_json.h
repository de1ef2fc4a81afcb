/// \file  Reads a tokenizer.json into plain structs. Ids of added tokens equal those of the `tokenizers` library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/split.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_piece.h"

namespace evenkeel::tokenizer {

/// A part of a post-processor's template: the encoded text, or fixed ids.
struct TemplatePiece {
  bool is_sequence = false;  ///< true: the encoded text; `ids` is empty
  std::vector<int64_t> ids;
};
using Template = std::vector<TemplatePiece>;

/// The parts of a tokenizer.json.
struct TokenizerFile {
  BytePairEncoder::Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of rank
  BpeOptions bpe;
  std::optional<WordPieceOptions> word_piece;  ///< set for WordPiece, which has no merges
  std::optional<UnigramOptions> unigram;       ///< set for Unigram, which has no merges
  std::vector<AddedToken> added;               ///< with their final ids
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;       ///< not for WordPiece
  std::vector<Template> templates;  ///< of the post-processor, applied in order
  TokenDecoder decoder;
};

/// Reads one file. \throws kData with the file and the key that is malformed, unsupported or above a limit; kIo if the
/// file cannot be read.
TokenizerFile read_tokenizer_file(const std::filesystem::path& file);

/// Reads the tokenizer.json of a model's folder and applies the other tokenizer files (tokenizer_folder.h). \throws as
/// read_tokenizer_file().
TokenizerFile read_tokenizer_folder(const std::filesystem::path& folder);

}  // namespace evenkeel::tokenizer
