/// \file  The content of a tokenizer.json, read strictly into plain structs; ids of added tokens as the `tokenizers`
/// library gives them.
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
#include "tokenizer/word_piece.h"

namespace evenkeel {

/// A part of a post-processor's template: the sequence itself, or fixed ids around it.
struct TemplatePiece {
  bool is_sequence = false;
  std::vector<int64_t> ids;
};
using Template = std::vector<TemplatePiece>;

struct TokenizerFile {
  BytePairEncoder::Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of rank
  BpeOptions bpe;
  std::optional<WordPieceOptions> word_piece;  ///< the model, instead of merges
  std::vector<AddedToken> added;               ///< with their final ids
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;       ///< of byte-pair encoding
  std::vector<Template> templates;  ///< applied one after the other
  TokenDecoder decoder;
};

/// \throws kData with the file, the key and what is malformed, not supported or more than is sane; kIo when it cannot
/// be read.
TokenizerFile read_tokenizer_file(const std::filesystem::path& file);

/// The tokenizer.json of a model's folder with what the files beside it say (tokenizer_folder.h). \throws likewise
TokenizerFile read_tokenizer_folder(const std::filesystem::path& folder);

}  // namespace evenkeel
